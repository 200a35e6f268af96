"""tilth's labelling against transformers' pipeline: sentences per second, in one process.

    python benchmarks/label.py                                       # the starter, SST-2
    python benchmarks/label.py --model starter-encoder --sentences 2000
    python benchmarks/label.py --model FacebookAI/roberta-large-mnli --device cuda

The pipeline runs as its users run it, in float32, with the batch size that is fastest for it here
(several are tried first); --pipeline-precision gives it another. Both label the same sentences
with the same model, in turn, several rounds; the ratio of each round's seconds is taken and their
median printed. On a machine that does other work, --cpu-time compares the processor's seconds.
--predict measures `tilth.predict` as well: the model loaded and fingerprinted, the rows read and
labelled in parts, the set written; --export the model as `tilth export` writes it, 8-bit. --vectors
compares sentence vectors of an encoder with sentence-transformers' in the same precision. The limit
is what the matrix products of tilth's run take at the rate of a large product. A head
that was never trained is as fast as any: it is drawn where the model has none, and so that classes
differ; the labels are compared.
"""

from __future__ import annotations

import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import pipeline

from inputs import script_parser
from limits import product_count, product_rate
from tilth.errors import InputError
from tilth.models.classifier import Classifier, load_classifier, new_classifier
from tilth.models.device import choose_precision
from tilth.models.embed import embed, unit
from tilth.models.encoder import load_encoder
from tilth.models.onnx import save_onnx
from tilth.workflows.predict import predict

SIZES = (1, 8, 16, 32, 64, 128)
TRIED = 256  # sentences, to find the pipeline's best batch size


def sentences(path: Path, count: int) -> list[str]:
    """Return different sentences of a set, in its order."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line)["text"] for line in file]
    return list(dict.fromkeys(rows))[:count]


def loaded(name: str, device: str) -> Classifier:
    """Return a finished classifier, or a base with a drawn head whose classes differ."""
    try:
        return load_classifier(name, device=device)
    except InputError:
        labels = [f"class {number}" for number in range(4)]
        drawn = new_classifier(name, kind="class", labels=labels, device=device)
    with torch.no_grad():  # else all probabilities are near one another, and rounding decides
        for key, weight in drawn.model.named_parameters():
            if key in drawn.fresh:
                weight.mul_(20)
    return drawn


def pipelines(classifier: Classifier, precision: str) -> Callable[[list[str], int], list[str]]:
    """Return labelling by the pipeline."""
    model: Any = classifier.model
    if precision != "float32":
        import copy

        model = copy.deepcopy(model).to(choose_precision(precision, classifier.device))
    made: Any = pipeline  # its overloads name other kinds of device
    run = made(
        "text-classification", model=model, tokenizer=classifier.tokenizer, device=classifier.device
    )

    def label(texts: list[str], size: int) -> list[str]:
        rows = run(texts, batch_size=size, truncation=True, max_length=classifier.max_length)
        return [row["label"] for row in rows]

    return label


def best_size(label: Callable[[list[str], int], list[str]], texts: list[str], clock: Any) -> int:
    """Return the batch size at which the pipeline is fastest, printing all."""
    some = texts[:: max(1, len(texts) // TRIED)][:TRIED]
    seconds = {}
    for size in SIZES:
        label(some[:size], size)
        seconds[size] = seconds_of(partial(label, some, size), clock)
    rates = ", ".join(f"{size}: {len(some) / taken:.0f}" for size, taken in seconds.items())
    print(f"pipeline by batch size, sentences/s: {rates}", flush=True)
    return min(seconds, key=lambda size: seconds[size])


def seconds_of(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return how long some work takes."""
    start = clock()
    work()
    return clock() - start


def compare_vectors(name: str, texts: list[str], rounds: int, clock: Any) -> None:
    """Print how many sentences an encoder encodes, by sentence-transformers and by tilth."""
    encoder = load_encoder(name)
    dtype = choose_precision("auto", encoder.device)
    is_cast = dtype is not torch.float32

    def theirs() -> Any:
        with torch.autocast(encoder.device.type, dtype, enabled=is_cast):
            return encoder.encode(texts, batch_size=64, show_progress_bar=False)

    def ours() -> Any:
        return embed(encoder, texts)

    cosine = float(np.sum(unit(theirs()) * unit(ours()), axis=1).min())  # and both are warm
    ratios = []
    for _ in range(rounds):
        plain, taken = (seconds_of(work, clock) for work in (theirs, ours))
        ratios.append(plain / taken)
        rates = [len(texts) / seconds for seconds in (plain, taken)]
        print(f"sentence-transformers {rates[0]:.0f}, tilth {rates[1]:.0f} ({ratios[-1]:.2f}x)")
    print(f"vectors: median ratio {statistics.median(ratios):.2f}x, least cosine {cosine:.5f}")


def main() -> None:
    """Run both in turn and print sentences per second and ratios."""
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="starter-mlm", help="starter, folder, run, hub id")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--set", default="classify/sst2", help="folder of data, with train.jsonl.gz"
    )
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None, help="of torch")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto", help="of tilth")
    parser.add_argument("--pipeline-precision", default="float32")
    parser.add_argument("--predict", action="store_true", help="the whole command, too")
    parser.add_argument("--export", action="store_true", help="8-bit ONNX, too")
    parser.add_argument("--vectors", action="store_true", help="sentence vectors instead")
    parser.add_argument("--cpu-time", action="store_true", help="of the process, not of the clock")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    clock = time.process_time if args.cpu_time else time.perf_counter
    texts = sentences(args.data / args.set / "train.jsonl.gz", args.sentences)
    if args.vectors:
        compare_vectors(args.model, texts, args.rounds, clock)
        return
    classifier = loaded(args.model, args.device)
    dtype = choose_precision(args.precision, classifier.device)
    named = str(dtype).removeprefix("torch.")
    print(f"{args.model}: {len(texts)} sentences, tilth in {named} on {classifier.device}")
    label = pipelines(classifier, args.pipeline_precision)
    size = best_size(label, texts, clock)
    ours = np.empty((0, 0), np.float32)
    theirs: list[str] = []

    def label_ours() -> None:
        nonlocal ours
        ours = classifier.probabilities(texts, precision=args.precision)

    def label_theirs() -> None:
        nonlocal theirs
        theirs = label(texts, size)

    products = product_count(label_ours)
    limits: list[float] = []
    works: dict[str, Callable[[], object]] = {"tilth": label_ours}
    with tempfile.TemporaryDirectory() as folder:
        if args.predict:
            classifier.save(Path(folder) / "model")
            how = {"precision": args.precision, "device": args.device, "quiet": True}
            works["predict"] = lambda: predict(f"{folder}/model", texts, **how)
        if args.export:
            save_onnx(loaded(args.model, "cpu"), Path(folder) / "int8", is_int8=True)
            exported = load_classifier(f"{folder}/int8")
            works["int8"] = lambda: exported.probabilities(texts)
        for work in works.values():
            work()  # kernels and memory are warm, as the pipeline's are
        ratios: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(args.rounds):
            plain = seconds_of(label_theirs, clock)
            said = f"pipeline (batches of {size}) {len(texts) / plain:.0f}"
            for name, work in works.items():
                taken = seconds_of(work, clock)
                ratios[name].append(plain / taken)
                if name == "tilth":
                    limits.append(products / product_rate(clock, dtype) / taken)
                said += f", {name} {len(texts) / taken:.0f} ({ratios[name][-1]:.1f}x)"
            print(f"sentences/s: {said}", flush=True)
    same = np.mean([classifier.labels[n] for n in ours.argmax(axis=1)] == np.array(theirs))
    shares = np.bincount(ours.argmax(axis=1), minlength=len(classifier.labels)) / len(texts)
    print(f"same label for {100 * same:.2f} % (shares of labels {np.round(shares, 2).tolist()})")
    for name, found in ratios.items():
        print(f"{name}: median ratio {statistics.median(found):.1f}x")
    if classifier.device.type == "cpu":
        print(f"tilth: {statistics.median(limits):.0%} of the limit")
    if same < 0.98:
        raise SystemExit("the labels do not agree")


if __name__ == "__main__":
    main()

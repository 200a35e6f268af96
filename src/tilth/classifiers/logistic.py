"""Logistic regression on features, also as the first weights of a classifier's head."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.classifiers.collate import EncodedRows
from tilth.classifiers.trainer import model_inputs
from tilth.models.classifier import output_layer
from tilth.models.pretrained import silence_transformers

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier, Kind

Head = tuple[NDArray[np.float32], NDArray[np.float32]]  # weights (labels, width), biases (labels,)
_STRENGTH = 0.1  # of the head's regression: embeddings have many features of magnitude 1
_MOST, _BATCH = 5_000, 32  # rows of the regression, and of a forward pass
_FAR = 5.0  # logit below the others' of a label that no row has


def logistic(
    features: Any,
    targets: NDArray[np.float32],
    kind: Kind,
    strength: float,
    counts: NDArray[np.int64] | None = None,
) -> Head:
    """Fit logistic regression; return its weights, (labels, width), and biases, (labels,).

    Args:
        features: an array or a sparse matrix. # (rows, width)
        targets: probabilities; the likeliest label counts, for `multi` all above one half.
            # (rows, labels)
        kind: `multi`: one regression for each label; else one of all labels.
        strength: inverse of the regularisation.
        counts: how often each row counts; None: once. # (rows,)
    """
    labels, width = targets.shape[1], features.shape[1]
    weights = np.zeros((labels, width), np.float32)
    biases = np.zeros(labels, np.float32)
    if kind == "multi":
        for label in range(labels):
            found = _fit(features, targets[:, label] > 0.5, strength, counts)
            if found is None:
                biases[label] = _FAR if targets[0, label] > 0.5 else -_FAR
            else:
                weights[label], biases[label] = found[1][0], found[2][0]
        return weights, biases
    found = _fit(features, targets.argmax(axis=1), strength, counts)
    seen, some, offsets = found or (np.unique(targets.argmax(axis=1)), weights[:1], np.zeros(1))
    if len(seen) == 2 and len(some) == 1:  # one row of weights for both
        some, offsets = np.concatenate([-some, some]) / 2, np.concatenate([-offsets, offsets]) / 2
    biases[:] = offsets.min() - _FAR
    weights[seen], biases[seen] = some, offsets
    return weights, biases


def _fit(
    features: Any, answers: NDArray[Any], strength: float, counts: NDArray[np.int64] | None
) -> Any:
    """Return the classes that occur, weights and biases; None where there is only one."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(answers)) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few rows a label; not converged
        model = LogisticRegression(C=strength, max_iter=1000)
        model.fit(features, answers, sample_weight=counts)
    return model.classes_, model.coef_, model.intercept_


def adapt_logits(logits: NDArray[Any], gold: NDArray[np.int64], penalty: float) -> Head:
    """Fit logistic regression on logits of the same labels, to few rows' labels.

    Its weights are drawn to the identity, and its biases to 0, as by Gaussian priors: without rows
    the logits stay as they are.

    Args:
        logits: (rows, labels)
        gold: index of each row's label. # (rows,)
        penalty: of squared changes of weights, halved; that of biases is 1.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rows, labels = logits.shape
    inputs = np.column_stack([logits, np.ones(rows)]).astype(np.float64)  # (rows, labels + 1)
    begun = np.eye(labels + 1, labels)  # of weights, then of biases
    penalties = np.append(np.full(labels, penalty), 1.0)[:, None]
    answers = np.eye(labels)[gold]

    def loss(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        changes = flat.reshape(begun.shape)
        found = log_softmax(inputs @ (begun + changes), axis=1)  # (rows, labels)
        gradient = inputs.T @ (np.exp(found) - answers) + penalties * changes
        cost = float((penalties * changes**2).sum() / 2 - (answers * found).sum())
        return cost, gradient.ravel()

    found = minimize(loss, np.zeros(begun.size), jac=True, method="L-BFGS-B")
    weights = (begun + found.x.reshape(begun.shape)).astype(np.float32)
    return weights[:-1].T, weights[-1]


def probabilities(features: Any, head: Head, kind: Kind) -> NDArray[np.float32]:
    """Return the probabilities of a regression, (rows, labels)."""
    from scipy.special import expit, softmax

    weights, biases = head
    logits = np.asarray(features @ weights.T) + biases
    found: NDArray[np.float32] = expit(logits) if kind == "multi" else softmax(logits, axis=1)
    return found.astype(np.float32)


def begin_head(classifier: Classifier, train: EncodedRows) -> None:
    """Initialise a head on embeddings with the weights of a regression on them.

    Fine-tuning then starts from logistic regression; from chance, with few rows for each label, it
    would not get as far. At most 5,000 rows are used.

    Reference:
        Kumar et al. 2022, "Fine-Tuning can Distort Pretrained Features", arXiv 2202.10054.
    """
    rows = some_rows(len(train))
    inputs = head_inputs(classifier, train, rows)
    set_head(classifier, fit_head(inputs, train.targets[rows], classifier.kind))


def some_rows(count: int) -> NDArray[np.int64]:
    """Return the indices of at most 5,000 of so many rows, in a random order."""
    return np.random.default_rng(0).permutation(count)[:_MOST]


def head_inputs(
    classifier: Classifier, encoded: EncodedRows, rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return what the head of a text classifier reads of some rows, (rows, width)."""
    order = np.argsort(encoded.ids.lengths[rows], kind="stable")
    model: Any = classifier.model
    found: list[NDArray[np.float32]] = []

    def keep(_: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        found.append(inputs[0].float().cpu().numpy())

    hook = output_layer(model)[1].register_forward_pre_hook(keep)
    with hook, torch.inference_mode(), silence_transformers():
        model.train(mode=False)
        for start in range(0, len(rows), _BATCH):
            batch = encoded[rows[order[start : start + _BATCH]].tolist()]
            inputs = {key: one.to(classifier.device) for key, one in model_inputs(batch).items()}
            model(**inputs)
    features: NDArray[np.float32] = np.concatenate(found)[np.argsort(order)]
    return features


def fit_head(
    features: NDArray[np.float32],
    targets: NDArray[np.float32],
    kind: Kind,
    counts: NDArray[np.int64] | None = None,
) -> Head:
    """Fit logistic regression on what a head reads; arguments as of `logistic`."""
    return logistic(features, targets, kind, _STRENGTH, counts)


def set_head(classifier: Classifier, head: Head) -> None:
    """Set the weights and biases of a head."""
    layer = output_layer(classifier.model)[1]
    with torch.no_grad():
        for parameter, values in zip((layer.weight, layer.bias), head, strict=True):
            parameter.copy_(torch.from_numpy(values))

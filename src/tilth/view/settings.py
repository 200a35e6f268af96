"""Settings of `tilth view`: where it listens, and the models and banks of the Try pages."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tilth.errors import InputError
from tilth.limits import PORT as PORTS
from tilth.limits import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TryModels:
    """Models and banks of the Try pages, beside the classifiers and banks of the folder."""

    lm: Annotated[
        str, "Language model that writes for a task: starter, a folder, a hub id or an endpoint."
    ] = "starter"
    rewriter: Annotated[str, "Model that rewrites a text."] = "starter"
    scorer: Annotated[str, "Model that measures the meaning of rewrites."] = "starter"
    classifier: Annotated[
        tuple[str, ...], "A classifier or a tagger; the option may be given several times."
    ] = ()
    bank: Annotated[tuple[str, ...], "A bank to search; likewise."] = ()
    device: Annotated[str, "auto, cpu, cuda or cuda:N."] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSettings:
    """Where `tilth view` listens, where it writes annotations, and what may be tried."""

    host: Annotated[
        str, "IP address to listen on; another than 127.0.0.1 lets others on the network in."
    ] = "127.0.0.1"
    port: Annotated[int, PORTS, "Port to listen on; 0: 8420, or the next free one."] = 0
    annotations: Annotated[
        Path | None, "Folder of the annotations; default: RUN.annotations, beside each run."
    ] = None
    models: Annotated[TryModels, "What the Try pages use"] = field(default_factory=TryModels)

    def __post_init__(self) -> None:
        """Check the address."""
        check_fields(self)
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            raise InputError(
                f"--host is {self.host!r}: give an IP address, such as 127.0.0.1 or 0.0.0.0"
            ) from None

"""Where a silo computes: the silo half of a method, on its own data, with its own memory, and the
gate on the way out.

Nothing passes the gate that the method did not declare, in the channel and shape it declared:
`_check` refuses it, whatever the method's code put into its answer.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from crypto.errors import Refusal
from crypto.numbers.encoding import Encoding
from methods.base import Answer, Arrays, Contradiction, Exchange, Heard, Method, SiloView, silo_name
from methods.dp.coverage import why_free
from privacy.events import Event, Free, NonPrivate
from privacy.sum_noise import SumNoise
from silo import noise as sum_noise
from silo.ledger import Ledger, budget_of
from silo.memory import MemoryFile, OptimizerFile
from study.agreement import rounding_seed
from wire.stored import Lazily, give_back, stored

__all__ = ["DIVERGED", "Gate"]

log = logging.getLogger("silo")
DIVERGED = "training diverged, lower LR"
_LARGEST = 1e3  #: of a number received under DP=record


class _Carried(dict[str, Any]):
    """What a round's earlier exchanges left. Nothing else may stand in for what is not there."""

    def __missing__(self, name: str) -> Any:
        raise Refusal(
            "model-inconsistency",
            f"it stands on {name!r} of an earlier exchange of the round, which this silo has not answered, or "
            "was told anew",
        )


class Gate:
    def __init__(
        self, view: SiloView, method: Method, memory: MemoryFile, ledger: Ledger | None = None
    ) -> None:
        self._memory = memory
        self._ledger = ledger if ledger is not None else Ledger(None, budget_of(view.settings))
        self._view = replace(view, memory=memory.read(), privacy=method.privacy)
        self._optimizer = OptimizerFile(memory)
        if view.settings.keep_optimizer:
            before, after = self._optimizer.before, self._optimizer.after
            self._view = replace(self._view, kept_optimizer=before, keep_optimizer=after)
        self._method = method
        self._last: tuple[Any, Answer] | None = None
        self._last_noise: SumNoise | None = None
        # exchange -> what its answer left for later ones
        self._carried: dict[int, Mapping[str, Any]] = {}
        # exchange -> whose answers are in its sum, by a certificate that was checked
        self._certified: dict[int, tuple[int, ...]] = {}
        self._charged: list[dict[str, Any]] = []

    def exchange(self, index: int) -> Exchange:
        if not 0 <= index < len(self._method.exchanges):
            raise Refusal(
                "undeclared-upload", f"{self._method.name} has no exchange number {index}"
            )
        return self._method.exchanges[index]

    def caps(self, index: int, encoding: Encoding) -> list[float]:
        """The widest clip ranges that a sum of this exchange may have."""
        exchange, settings = self.exchange(index), self._view.settings
        if settings.dp == "silo":
            return list(sum_noise.agreed_ranges(settings, self._method, exchange, encoding))
        return [s.cap for s in exchange.masked.values()]

    def terms(self, index: int, encoding: Encoding) -> dict[str, Any]:
        """What the method declares of this exchange's sum: under no other is it joined."""
        exchange = self.exchange(index)
        return {
            "expected": tuple(s.size for s in exchange.masked.values()),
            "caps": self.caps(index, encoding),
            "weight_cap": exchange.weight_cap,
            "contributors": exchange.contributors,
        }

    def ask_again(self, index: int) -> None:
        """An exchange stands on those before it, also when it is asked for again after later ones: a
        coordinator that crashed may begin the round anew, and must get the same answer.

        What the exchange and later ones left is gone as soon as it is told again, answered or not.
        The sum's context forgets it at the same moment (silo.told): what a silo still carried would
        be bound by nothing.
        """
        self._carried = {k: v for k, v in self._carried.items() if k < index}
        self._certified = {k: v for k, v in self._certified.items() if k < index}
        if self._last is not None and self._last[0][1] > index:
            self._last = None

    def answer(
        self, index: int, heard: Heard, heard_hash: bytes, encoding: Encoding | None = None
    ) -> Answer:
        """Compute, check, remember. Asked again for the same payload (a sum that failed), it
        answers the same.

        `encoding`: of the sum that the masked arrays go into; DP=silo makes its noise for that one.
        """
        key = (heard.round, index, heard_hash)
        self.ask_again(index)
        exchange, settings = self.exchange(index), self._view.settings
        noise = None
        if settings.dp == "silo" and exchange.masked:  # before an answer is given out again, too
            noise = sum_noise.check(settings, self._method, exchange, encoding, len(heard.cohort))
        if self._last is not None and self._last[0] == key:
            if noise != self._last_noise:
                raise Refusal(
                    "tiny-sum",
                    f"{exchange.name}: its noise was made for a sum over another number of silos",
                )
            self._keep(index, heard, self._last[1], encoding)  # a sum tried again is coded anew
            return self._last[1]

        def spend(what: str, event: Event) -> None:
            self._ledger.charge(heard.round, exchange.name, what, event)

        if settings.dp == "record":
            _check_bounded(heard)
        if heard.private and not self._may_be_told_alone(exchange):
            raise Refusal(
                "model-inconsistency",
                f"{exchange.name}: arrays for this silo alone, which the sum does not bind",
            )
        if noise is not None and encoding is not None:
            spend("noisy sum", sum_noise.charge_of(noise, exchange, encoding))
        carry = _Carried(
            (name, value) for k in sorted(self._carried) for name, value in self._carried[k].items()
        )
        try:
            view = replace(self._view, carry=carry, spend=spend, certified=self._certified)
            answer = exchange.answer(view, heard)
        except Contradiction as e:  # a lie that would leave the others silent
            raise Refusal("silent-others", f"{exchange.name}: {e}") from None
        if exchange.everyone:
            answer = replace(answer, carry={})
        if settings.dp != "off":
            answer = replace(answer, masked=_finite(exchange, answer.masked))
        _check(exchange, answer)
        if noise is not None:
            secret = self._view.noise_key(heard.round, f"ring/{exchange.name}")
            answer = replace(
                answer, masked=sum_noise.noised(noise, exchange, answer.masked, secret)
            )
        for disclosure in exchange.disclosures:
            why = why_free(self._method, exchange, disclosure.name, settings.dp)
            spend(disclosure.name, Free(why) if why else NonPrivate())
        if answer.memory is not None:
            self._view = replace(self._view, memory=self._memory.kept(answer.memory))
            answer = replace(answer, memory=None)
        self._optimizer.keep()
        # last: what failed halfway leaves nothing behind
        self._keep(index, heard, answer, encoding)
        if answer.notes:
            figures = " ".join(f"{k}={v:.6g}" for k, v in answer.notes.items())
            log.info("round %d, %s: %s", heard.round, exchange.name, figures)
        # Until its turn to send it, and perhaps to send it again, it waits on the disk.
        answer = replace(answer, masked=stored(answer.masked, self._memory.folder))
        if isinstance(answer.masked, Lazily):
            give_back()
        self._last, self._last_noise, self._charged = (key, answer), noise, self._ledger.drain()
        return answer

    def _may_be_told_alone(self, exchange: Exchange) -> bool:
        """What one silo alone is told could silence the others. So either every sum of the method
        hides behind signed contributors, or nothing of this exchange is left for later ones; what a
        silo keeps of it on its disk (`methods.common.public_start`) is named in the sum's context.
        """
        sums = [e for e in self._method.exchanges if e.masked]
        return all(e.contributors for e in sums) or exchange.contributors or exchange.everyone

    def _keep(self, index: int, heard: Heard, answer: Answer, encoding: Encoding | None) -> None:
        """What this exchange leaves for the round's later ones."""
        carry = dict(answer.carry)
        if self.exchange(index).keep_coded and encoding is not None:
            view = self._view
            seed = rounding_seed(view.settings, view.index, heard.round, index)
            carry["coded"] = _coded(encoding, answer.masked, seed)
        self._carried[index] = carry

    def charged(self) -> list[dict[str, Any]]:
        """What the ledger was charged for the last answer; the same again when it is asked for
        again.
        """
        return self._charged

    def certified(self, index: int, survivors: Collection[str]) -> None:
        """These are in the sum of this exchange: this silo has checked that enough holders signed
        it. The round's later exchanges may count on it.
        """
        silos = range(self._view.settings.silos)
        self._certified[index] = tuple(i for i in silos if silo_name(i) in survivors)

    @property
    def last(self) -> int:
        """The last exchange of a round."""
        return len(self._method.exchanges) - 1

    def kept(self) -> tuple[dict[int, Mapping[str, Any]], dict[int, tuple[int, ...]]]:
        """What the round's later exchanges stand on and do not compute again: what answers left, and
        who is in which sum.
        """
        again = {k: self.exchange(k).computed_again for k in self._carried}
        carried: dict[int, Mapping[str, Any]] = {
            k: {name: value for name, value in carry.items() if name not in again[k]}
            for k, carry in self._carried.items()
        }
        return carried, dict(self._certified)

    def restore(
        self,
        carried: Mapping[int, Mapping[str, Any]],
        certified: Mapping[int, tuple[int, ...]],
    ) -> None:
        self._carried, self._certified = dict(carried), dict(certified)

    def end_round(self) -> None:
        self._carried.clear()
        self._certified.clear()
        if self._last is not None and isinstance(self._last[1].masked, Lazily):
            give_back()  # what masking took; it is large
        self._last = None


def _check_bounded(heard: Heard) -> None:
    """Before any record is looked at. A model of numbers near float32's end overflows where other
    records of a batch have their padding, or rounds as they do, so that one record decides whether
    others count. None that was trained comes near this.
    """
    for name, array in (*heard.common.items(), *heard.private.items()):
        if array.dtype.kind == "f" and not (np.abs(array) <= _LARGEST).all():
            raise Refusal(
                "range-widening",
                f"{name[:80]!r} as received holds NaN or numbers beyond {_LARGEST:g}: {DIVERGED}, or "
                "somebody made them so",
            )


def _finite(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Nothing in place of what is no number: to refuse then would tell of the data what no noise
    covers.
    """
    if all(np.isfinite(a).all() for a in arrays.values()):
        return arrays
    log.warning(f"what was computed holds NaN or infinity: {DIVERGED}; zeros are sent instead")
    counts = {k for k, spec in exchange.masked.items() if spec.public_count}
    return {k: a if k in counts else np.zeros_like(a) for k, a in arrays.items()}


def _coded(encoding: Encoding, arrays: Arrays, seed: bytes) -> Arrays:
    """The arrays as the sum holds them: clipped to its ranges and rounded to its steps."""
    words = np.concatenate([f.copy() for f in encoding.encode(list(arrays.values()), seed)])
    flats = encoding.decode(words, 1)
    return {
        name: flat.reshape(a.shape).astype(np.float32)
        for (name, a), flat in zip(arrays.items(), flats)
    }


def _check(exchange: Exchange, answer: Answer) -> None:
    covered = {(d.name, d.channel) for d in exchange.disclosures}
    if exchange.contributors and ("contributes", "signed") not in covered:
        raise Refusal(
            "undeclared-upload", f"{exchange.name}: no disclosure covers its word of contribution"
        )
    for channel, arrays, declared in (
        ("masked", answer.masked, exchange.masked),
        ("sealed", answer.sealed, exchange.sealed),
    ):
        if list(arrays) != list(declared):
            odd = sorted(set(arrays) ^ set(declared)) or list(arrays)
            raise Refusal(
                "undeclared-upload",
                f"{exchange.name}: {channel} arrays differ from the declared: {odd[:3]}",
            )
        for name, array in arrays.items():
            if (name.split("/")[0], channel) not in covered:
                raise Refusal(
                    "undeclared-upload", f"{exchange.name}: no disclosure covers {channel} {name}"
                )
            spec = declared[name]
            fits = len(array.shape) == len(spec.shape) and all(
                want is None or want == got for want, got in zip(spec.shape, array.shape)
            )
            if not fits or array.dtype != np.dtype(spec.dtype):
                got, want = f"{array.dtype}{list(array.shape)}", f"{spec.dtype}{list(spec.shape)}"
                raise Refusal("wrong-shape", f"{exchange.name}: {name} is {got}, declared {want}")
            longest = max((g for w, g in zip(spec.shape, array.shape) if w is None), default=0)
            if longest > spec.most:
                why = f"{name} has {longest} entries, and the study allows {spec.most} at most"
                raise Refusal("oversize", f"{exchange.name}: {why}")
            if channel == "masked" and not np.isfinite(array).all():
                what = f"{name} holds NaN or infinity: {DIVERGED}"
                raise Refusal("wrong-shape", f"{exchange.name}: {what}")
            if spec.public_count and not ((array >= 0) & (array <= 1)).all():
                raise Refusal(
                    "weight-hog",
                    f"{exchange.name}: a weight that is not between nothing and the agreed cap",
                )

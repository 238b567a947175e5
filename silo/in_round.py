"""What a silo keeps of a round from one exchange to the next, in one hand: what it was told
(silo.told), what its answers left (silo.gate), and the file of both (silo.round_file).
"""

from __future__ import annotations

import logging

from crypto.sum.records import SumHeader, UnmaskRequest
from silo.gate import Gate
from silo.round_file import KeptRound, RoundFile
from silo.told import Told, ToldRound

__all__ = ["InRound"]

log = logging.getLogger("silo")


class InRound:
    def __init__(self, told: ToldRound, gate: Gate, file: RoundFile) -> None:
        self._told, self._gate, self._file = told, gate, file
        self._sums: dict[bytes, int] = {}
        if (kept := file.read()) is not None:
            told.restore(kept.round, kept.answered)
            gate.restore(kept.carried, kept.certified)
            self._sums = dict(kept.sums)

    def ask_again(self, exchange: int) -> None:
        """Asked for an exchange again, a silo starts from what came before it and nothing else."""
        told_before = any(k >= exchange for k in self._told.answers)
        self._told.ask_again(exchange)
        self._gate.ask_again(exchange)
        self._sums = {h: k for h, k in self._sums.items() if k < exchange}
        if told_before:
            self._write()

    def answered(self, told: Told, header: SumHeader | None) -> None:
        """An answer is ready. On disk, where its sum may be opened and others follow."""
        self._told.note_answered(told)
        if header is not None:
            self._sums[header.h] = told.message.exchange
            if told.message.exchange < self._gate.last:
                self._write()

    def certified(self, request: UnmaskRequest) -> None:
        """Enough holders signed who is in this sum; that was checked. On disk before it is used."""
        if (exchange := self._sums.get(request.h)) is not None:
            self._gate.certified(exchange, request.survivors)
            if exchange < self._gate.last:
                self._write()

    def over(self) -> None:
        self._gate.end_round()
        self._told.over()
        self._sums.clear()
        self._file.forget()

    def _write(self) -> None:
        if not self._file.keeps or self._told.number is None:
            return
        if not any(k < self._gate.last for k in self._sums.values()):
            self._file.forget()  # nothing can be opened that later exchanges stand on
            return
        carried, certified = self._gate.kept()
        answers = self._told.answers
        kept = {k: carried.get(k, {}) for k in answers}
        try:
            self._file.write(KeptRound(self._told.number, answers, kept, certified, self._sums))
        except OSError as e:  # it takes part all the same, and must not be killed in this round
            log.error("this silo's disk: %s; a restart would forget this round", e)
            self._file.forget()

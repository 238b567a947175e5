"""Which methods may run under differential privacy, what of theirs costs nothing then, and why the others refuse.

`DP=record` trains with DP-SGD (`methods.dpsgd`): the trained model is private, and whatever is computed from it and
from public things is free. A method is listed in `RECORD` with every disclosure it makes and the reason why it is free
once training is charged; one that is not listed, or discloses something that is not, cannot run with a budget: the
silo's ledger sees a non-private release. `REFUSED` says why, where somebody has looked.

`DP=silo` puts noise into the secure sum, so it is for methods that send nothing but masked sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from config.errors import UserError
from config.settings import Settings

if TYPE_CHECKING:
    from methods.base import Method
    from methods.task import Task

__all__ = ["RECORD", "REFUSED", "check", "why_free"]

_TRAINED = "computed from the model that DP-SGD trained, which is charged as training"
_COUNT = "the number of records, which this guarantee does not protect"
_IN_SUM = "a part of the noisy sum, which is charged as a whole"

_WEIGHTED = {"update": _TRAINED, "weight": _COUNT}

#: Method -> disclosure -> why it is free after DP-SGD. Every disclosure of a method must be here.
RECORD: Mapping[str, Mapping[str, str]] = {
    "fedavg": _WEIGHTED,
    "feded": {"predictions": _TRAINED},
    "fedatt": {"norms": _TRAINED, "update": _TRAINED},
}

_BAGS = "its loss is over bags of sentences, so that one sentence changes what is learnt from all others of its bag"
_CLASSES = "its loss on every record depends on the silo's class counts, so that one record changes all gradients"
_OWN_LOSS = "its loss has a term of its own, whose gradients are not yet had record by record"
_REFERENCE = "it is a reference, not a federation"

#: Method -> why it does not run with DP=record.
REFUSED: Mapping[str, str] = {
    "lazymil": "it sends the name and the best value of every bag, exact; a sentence more or less adds, removes or "
    "displaces one, and no noise on the values hides a name",
    "one": _BAGS,
    "ave": _BAGS,
    "att": _BAGS,
    "att_ra": _BAGS,
    "fedprox": _OWN_LOSS,
    "moon": _OWN_LOSS,
    "fedcmc": _OWN_LOSS,
    "fedlcc": _OWN_LOSS,
    "fedrs": _CLASSES,
    "fedlc": _CLASSES,
    "scaffold": "its control variates are a second, exact release about the same records",
    "centralised": _REFERENCE,
    "local": _REFERENCE,
    "public_only": "no silo trains or sends anything",
}


def why_free(method: str, disclosure: str, dp: str) -> str:
    """Why a disclosure costs nothing beside what was charged for training or for the sum; empty: it does cost."""
    if dp == "record":
        return RECORD.get(method, {}).get(disclosure, "")
    return _IN_SUM if dp == "silo" else ""


def check(method: Method, task: Task, settings: Settings) -> Method:
    """The method as it runs under the settings' privacy, or one sentence why it does not."""
    if settings.dp == "silo":
        raise UserError("DP=silo is not built: no noise is added inside the secure sum yet; use DP=record.")
    if settings.dp == "record":
        _check_record(method, task)
    return method


def _check_record(method: Method, task: Task) -> None:
    free = RECORD.get(method.name)
    if free is None:
        why = REFUSED.get(method.name, "nobody has shown that what it sends is covered")
        raise UserError(f'The method "{method.name}" does not run with DP=record: {why}.')
    open_ = [d.name for d in method.disclosures if d.name not in free]
    if open_:
        raise UserError(
            f'The method "{method.name}" does not run with DP=record: nobody has shown that its {open_[0]} are covered.'
        )
    if not task.record_unit:
        raise UserError(f"The {task.name} task does not run with DP=record: its gradients cannot be had by record yet.")

"""Rebuilding the seeds that a sum's survivors leave behind, from the holders' shares, with blame
for wrong ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from crypto.errors import Refusal
from crypto.numbers.shamir import rebuild
from crypto.sum.dealing import seed_commitment, share_tags, tag_of
from crypto.sum.graph import Topology
from crypto.sum.records import ShareRelease, UploadRecord

__all__ = ["Opening"]


class Opening:
    """The shares of one sum: b_u of every survivor u, and r_uv of every edge from a survivor u to a
    dropped v.
    """

    def __init__(
        self,
        h: bytes,
        topology: Topology,
        survivors: tuple[str, ...],
        records: Mapping[str, UploadRecord],
    ) -> None:
        self._h, self._topology, self._records = h, topology, records
        self._threshold = topology.parameters.threshold
        present = frozenset(survivors)
        #: (dealer, None or the dropped neighbour) -> (index of the seed in the dealer's upload,
        #: sign of the mask)
        self._wanted: dict[tuple[str, str | None], tuple[int, int]] = {}
        for dealer in survivors:
            self._wanted[dealer, None] = (0, 1)
            for index, other in enumerate(topology.neighbours(dealer), start=1):
                if other not in present:
                    self._wanted[dealer, other] = (index, 1 if dealer < other else -1)
        #: seed -> holder's point -> share
        self._shares: dict[tuple[str, str | None], dict[int, bytes]] = {
            key: {} for key in self._wanted
        }
        self._short = len(self._wanted)
        self._heard: set[str] = set()
        self._blobs = {dealer: dict(records[dealer].blobs) for dealer in survivors}

    @property
    def enough(self) -> bool:
        return self._short == 0

    def receive(self, release: ShareRelease) -> None:
        holder = release.holder
        point = self._topology.point.get(holder)
        if point is None:
            raise Refusal(
                "unknown-silo", f"shares of {holder}, which is no holder in this sum", holder
            )
        if holder in self._heard:
            raise Refusal("replay", f"a second release of {holder}", holder)
        given: dict[tuple[str, str | None], bytes] = {}
        for dealer, share in release.self_shares:
            given[dealer, None] = share
        for dealer, other, share in release.pair_shares:
            given[dealer, other] = share
        if len(given) != len(release.self_shares) + len(release.pair_shares):
            raise Refusal("bad-share", f"{holder} gave two shares of one seed", holder)
        if not given.keys() <= self._wanted.keys():
            raise Refusal("bad-share", f"{holder} gave a share that was not asked for", holder)
        self._check_tags(holder, given)
        self._heard.add(holder)
        for key, share in given.items():
            held = self._shares[key]
            held[point] = share
            if len(held) == self._threshold:
                self._short -= 1

    def _check_tags(self, holder: str, given: Mapping[tuple[str, str | None], bytes]) -> None:
        """Every share must carry the tag its dealer signed. A holder's own deal has no blob; its
        seed is checked.
        """
        by_dealer: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for (dealer, other), share in given.items():
            by_dealer[dealer].append((self._wanted[dealer, other][0], share))
        for dealer, shares in by_dealer.items():
            if dealer == holder:
                continue
            blob = self._blobs[dealer][holder]
            tags = share_tags(self._h, dealer, holder, shares)
            for (index, _), tag in zip(shares, tags):
                if tag != tag_of(blob, index):
                    raise Refusal(
                        "bad-share", f"{holder} gave another share than {dealer} dealt it", holder
                    )

    def seeds(self) -> list[tuple[bytes, int]]:
        """Every seed with the sign its mask has in the sum. A seed that breaks its commitment names
        its dealer.
        """
        groups: dict[tuple[int, ...], list[tuple[str, str | None]]] = defaultdict(list)
        for key, held in self._shares.items():
            dealer_point = self._topology.point.get(key[0])
            # A dealer's own share of its own seed has no tag: use it last, when nobody else's is
            # left.
            ordered = sorted(point for point in held if point != dealer_point)
            if dealer_point in held:
                ordered.append(dealer_point)
            groups[tuple(ordered[: self._threshold])].append(key)
        found: dict[tuple[str, str | None], bytes] = {}
        for points, keys in groups.items():
            rebuilt = rebuild(
                {point: [self._shares[key][point] for key in keys] for point in points}
            )
            for key, seed in zip(keys, rebuilt):
                dealer = key[0]
                index = self._wanted[key][0]
                promised = self._records[dealer].commitments[index]
                if seed is None or seed_commitment(self._h, dealer, index, seed) != promised:
                    raise Refusal(
                        "bad-share",
                        f"{dealer} dealt shares of another seed than it committed to",
                        dealer,
                    )
                found[key] = seed
        return [(found[key], sign) for key, (_, sign) in self._wanted.items()]

"""Secure aggregation: a coordinator learns the sum of the vectors of its sites, and no single vector.

The protocol is that of Bonawitz et al., *Practical Secure Aggregation for Privacy-Preserving Machine Learning*, CCS
2017, in its variant against a malicious coordinator, and from twenty sites on with the neighbour graph of Bell et al.,
*Secure Single-Server Aggregation with (Poly)Logarithmic Overhead*, CCS 2020. docs/privacy/secure-aggregation.md
explains it message by message. This package does not send anything: it has the objects of both sides, which exchange
bytes.

What to use
-----------
- `UpdateLayout` (update_layout.py) turns a prepared update and further fields into a vector of integers, and a sum of
  vectors into a `RoundSums` with a `MeanUpdate` for `Algorithm.advance`. `VectorLayout` and `Field` (layout.py) do the
  same for any other numbers, for example statistics of joining sites.
- `RoundTerms` (messages.py) is what all sites of one aggregation agree on: run, purpose, round, attempt, threshold,
  minimum, and the digest of the layout.
- `SecureSite` (site.py) answers at a site: `advertise`, `share`, `mask`, `agree`, `reveal`. Store `state.to_bytes()`
  after each of them, before the reply is sent; `SiteState.from_bytes` restores it. `SitePolicy` is what the site
  demands; `sign` and `verify` use the identity keys of the roster.
- `AggregationRound` (coordinator.py) is the coordinator of one attempt.
- `LocalFederation` (in_process.py) runs both sides in one process.
- Problems (problems.py): `Refusal` (a message that no honest run sends), `TooFewSites` (repeat the round with
  `terms.next_attempt()`, as long as `unmask_request` was not sent), `NotFinite` (the site must not send its update).

Exchanges of a round
--------------------
All messages have `to_bytes` and `from_bytes`. In the order of a round, coordinator to site -> reply:

    0  RoundTerms       -> KeyAdvertisement    fresh keys, signed by the identity key
    1  KeyList          -> EncryptedShares     shares of the site's secrets, for its neighbours
    2  MaskRequest      -> MaskedVector        with the weights; the update, masked
    3  SurvivorRequest  -> SurvivorSignature   only if sites dropped out between 1 and 2
    4  UnmaskRequest    -> RevealedShares      after which the sum is known

A round without dropouts needs two exchanges: the terms of round r + 1 and its keys travel with 2 of round r, its list
of keys and shares with 4 of round r. The signature of 3 comes with `MaskedVector` for the case that nobody drops out.
Only the first round, and a repeated attempt, need the exchanges 0 and 1 on their own.

Decisions
---------
- The threshold T is a share (`aggregation_threshold`) of the sites with keys, at least `minimum`, and above half.
- `received` in `SecureSite.mask` is the digest of all that decides what sites compute (weights, settings, round).
  Masks and signatures depend on it: sites with another digest are refused, and the sum with them is noise.
- A site reveals shares only for a list of survivors, with itself in it, that at least T of them signed, and it signs
  one such list besides "all of them". It reveals for one list only, and for no other attempt at that round.
- Lists of sites are sorted tuples of names. Names are those of the roster; a name that is not in it has no valid
  signature, so thresholds count keys of the roster.
- A coordinator that is resumed must use another `run` identifier: attempts that are over are refused.
"""

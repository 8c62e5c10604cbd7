"""Secure aggregation: the coordinator learns the sum of the sites' updates and no single one.

The protocol is that of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving
Machine Learning", CCS 2017 (IACR ePrint 2017/281), with double masking and recovery from sites
that drop out: `sharing` splits secrets, `masking` makes numbers whole and hides them, `identities`
says whose keys are whose, `messages` is what crosses, `participant` a site's side of a round and
`collector` the coordinator's.
"""

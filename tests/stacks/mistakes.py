"""Mistakes that people make in stack files: the text, the line, the words, the line to write.

Bases are valid; a mistake replaces a part of one. What the message proposes is applied by the
test, which then finds the problem gone.
"""

from __future__ import annotations

from dataclasses import dataclass

LOCAL = """\
# One machine.
config:
  falaj:platform: local
  falaj:dataset: digits
  falaj:dataClass: internal
  falaj:service:
    port: 8443   # its own
    workers: 2
  falaj:training: {epochs: 3, width: 16}
  falaj:keepVersions: 5
"""
TABLE = """\
config:
  falaj:platform: local
  falaj:dataset: data/customers.csv
  falaj:target: churned
"""
FOUNDATION = """\
config:
  falaj:platform: azure
  falaj:blueprint: foundation
  falaj:region: uaenorth
  falaj:tenant: acme
  falaj:owner: it@example.ae
  falaj:dataClass: internal
  falaj:costCenter: it
  falaj:keys:
    rotationDays: 180
  falaj:storage: {redundancy: zone, oldVersionDays: 30}
  falaj:identity:
    members:
      trainer: []
"""
CLUSTER = """\
config:
  falaj:platform: aws
  falaj:blueprint: cluster
  falaj:region: me-central-1
  falaj:foundation: aws-foundation
  falaj:acknowledgeDegraded:
    region: me-central-1
    asOf: "2026-04-30"
    for: sandbox
  falaj:tenant: acme
  falaj:owner: platform@example.ae
  falaj:dataClass: confidential
  falaj:costCenter: ai
  falaj:environment: production
  falaj:cpuPools:
    cpu: {system: true, vcpu: 4, minNodes: 2, maxNodes: 6}
  falaj:gpuPools:
    h200:
      gpu: H200
      count: 8
      fabric: efa
      zones: [mec1-az1]
      minNodes: 0
      maxNodes: 4
  falaj:fileSystem: {capacityGib: 2400, throughputMbsPerTib: 250}
"""
SMB = """\
config:
  falaj:platform: azure
  falaj:blueprint: smb
  falaj:region: uaenorth
  falaj:tenant: souq
  falaj:owner: it@example.ae
  falaj:dataClass: internal
  falaj:costCenter: shop
  falaj:network: {purpose: serving}
  falaj:inference:
    model: digits
    mode: serverless
    vcpu: 2
    memoryGib: 4
    minInstances: 1
    maxInstances: 3
  falaj:budget:
    monthlyUsd: 500
    emails: [it@example.ae]
"""
PLATFORM = """\
config:
  falaj:platform: kubernetes
  falaj:blueprint: cluster
  falaj:region: abudhabi-dc1
  falaj:context: abudhabi-dc1
  falaj:registry: registry.example.ae/falaj
  falaj:tenant: falaj
  falaj:owner: platform@example.ae
  falaj:dataClass: confidential
  falaj:costCenter: ai
  falaj:installation:
    controlPlaneCidrs: [10.60.0.0/24]
    addons:
      gpu-operator: {driver: false}
      external-secrets: false
      opencost: {gpu: 2.9, cpu: 0.031, memoryGib: 0.0042}
      velero: false
  falaj:queues:
    pools:
      h200: {nodes: 8, cpu: 180, memoryGib: 1900, devices: {nvidia.com/gpu: 8}}
    tenants:
      acme: {quotas: {h200: {devices: {nvidia.com/gpu: 32}}}}
  falaj:residency: {systemNamespaces: [rook-ceph]}
  falaj:policies:
    allowedSites: [abudhabi-dc1]
    waivers: stacks/waivers/platform.yaml
"""
WORKLOADS = """\
config:
  falaj:platform: azure
  falaj:blueprint: workloads
  falaj:region: uaenorth
  falaj:cluster: azure-cluster
  falaj:registry: acme.azurecr.io/falaj
  falaj:tenant: acme
  falaj:owner: ml@example.ae
  falaj:dataClass: confidential
  falaj:costCenter: ai
  falaj:trainingJobs:
    credit:
      dataset: credit-2026-10
      flavor: h200
      nodes: 2
      gpusPerNode: 8
      fabric: infiniband
      checkpoints: falaj-files
      arguments: ["--epochs", "20"]
"""
BASES = {
    "local": LOCAL, "table": TABLE, "foundation": FOUNDATION, "cluster": CLUSTER, "smb": SMB,
    "platform": PLATFORM, "workloads": WORKLOADS,
}  # fmt: skip
#: Stacks that others refer to.
SIBLINGS = {
    "aws-foundation": FOUNDATION.replace("azure", "aws").replace("uaenorth", "me-central-1"),
    "azure-cluster": CLUSTER.replace("aws", "azure").replace("me-central-1", "uaenorth"),
}


@dataclass(frozen=True)
class Mistake:
    """One mistake."""

    base: str
    old: str
    new: str
    line: int
    """The line that the message names."""
    said: str
    """What the message says after the place."""
    correct: str | None
    """The line to write, with its indentation; ``-`` for a line to remove; None where nothing
    can be proposed."""


MISTAKES = [
    # One machine.
    Mistake("local", "platform: local", "platform: Local", 3,
            "falaj:platform: given 'Local'; allowed: local, aws, azure, kubernetes; did you mean",
            "  falaj:platform: local"),
    Mistake("local", "dataClass: internal", "dataClass: Internal", 5,
            "falaj:dataClass: given 'Internal'; allowed: public, internal, confidential, restr",
            "  falaj:dataClass: internal"),
    Mistake("local", "port: 8443", "port: 80", 7,
            "falaj:service.port: given 80; allowed: a whole number from 1024 to 65535",
            "    port: 1024   # its own"),
    Mistake("local", "workers: 2", "worker: 2", 8,
            "falaj:service.worker: unknown key; did you mean workers?", "    workers: 2"),
    Mistake("local", "epochs: 3", "epochs: many", 9,
            "falaj:training.epochs: given 'many'; allowed: a whole number from 1 to 100000",
            "  falaj:training: {width: 16}"),
    Mistake("local", "epochs: 3", "epochs: yes", 9,
            "falaj:training.epochs: given 'yes'; allowed: a whole number",
            "  falaj:training: {width: 16}"),
    Mistake("local", "{epochs: 3, width: 16}", "{epochs: 0, width: 16, sed: 3}", 9,
            "falaj:training.epochs: given 0; allowed: a whole number from 1 to 100000",
            "  falaj:training: {epochs: 1, width: 16, seed: 3}"),
    Mistake("local", "{epochs: 3, width: 16}", "{processes: 6, parallel: {shard: 4}}", 9,
            "falaj:training.parallel: given shard 4 x tensor 1 x pipeline 1 = 4, but the training",
            "  falaj:training: {parallel: {shard: 4}}"),
    Mistake("local", "{epochs: 3, width: 16}", "{parallel: {tensor: 2, shard: 2}}", 9,
            "falaj:training.parallel.tensor: given 2, which is of a language model's layers",
            "  falaj:training: {parallel: {shard: 2}}"),
    Mistake("local", "workers: 2", "tokensPerMinute: 900", 8,
            "falaj:service.tokensPerMinute: given 900, but only language models have tokens", "-"),
    Mistake("local", "{epochs: 3, width: 16}", "{layers: 6, epochs: 3}", 9,
            "falaj:training.layers: given 6, which is of a language model's layers",
            "  falaj:training: {epochs: 3}"),
    Mistake("local", "{epochs: 3, width: 16}", "{vocabulary: 512, epochs: 3}", 9,
            "falaj:training.vocabulary: given 512, which is of a language model's tokens",
            "  falaj:training: {epochs: 3}"),
    Mistake("local", "{epochs: 3, width: 16}", "{compression: float16, epochs: 3}", 9,
            "falaj:training.compression: given 'float16', but the training has 1 process",
            "  falaj:training: {epochs: 3}"),
    Mistake("local", "keepVersions: 5", "keepVersions: 010", 10,
            "falaj:keepVersions: given 010 without quotes, read as the number 8; write 10",
            "  falaj:keepVersions: 10"),
    Mistake("local", "keepVersions: 5", "retain: yes", 10,
            "falaj:retain: given 'yes'; allowed: true or false", "  falaj:retain: true"),
    Mistake("local", "keepVersions: 5", "retain: on", 10,
            "falaj:retain: given 'on'; allowed: true or false", "  falaj:retain: true"),
    Mistake("local", "keepVersions: 5", "retain: no", 10,
            "falaj:retain: given 'no'; allowed: true or false", "  falaj:retain: false"),
    Mistake("local", "keepVersions: 5", "retain:", 10,
            "falaj:retain: given nothing; write a value, or leave the key out", "-"),
    Mistake("local", "keepVersions: 5", "model: My Model", 10,
            "falaj:model: given 'My Model'; allowed: 1 to 63 lower-case letters, digits and '-'",
            "  falaj:model: my-model"),
    Mistake("local", "keepVersions: 5", "model: 1.30", 10,
            "falaj:model: given 1.30 without quotes, read as the number 1.3; allowed: 1 to 63 l",
            '  falaj:model: "1-30"'),
    Mistake("local", "keepVersions: 5", "model: 2026-11-01", 10,
            "falaj:model: given 2026-11-01 without quotes, read as a point in time; put it in q",
            '  falaj:model: "2026-11-01"'),
    Mistake("local", "  falaj:keepVersions: 5", "\tfalaj:keepVersions: 5", 10,
            "a tab; YAML is indented by spaces", "  falaj:keepVersions: 5"),
    Mistake("local", "  falaj:keepVersions", "   falaj:keepVersions", 10,
            "not valid YAML: ", "  falaj:keepVersions: 5"),
    Mistake("local", "{epochs: 3, width: 16}", "{epochs: 3, width: 16", 9,
            "not valid YAML: ", "  falaj:training: {epochs: 3, width: 16}"),
    Mistake("local", "falaj:keepVersions", "falja:keepVersions", 10,
            "falja:keepVersions: unknown namespace 'falja'; allowed: falaj, pulumi, aws, ",
            "  falaj:keepVersions: 5"),
    Mistake("local", "falaj:keepVersions", "keepVersions", 10,
            "config key 'keepVersions' has no namespace; write it as falaj:keepVersions",
            "  falaj:keepVersions: 5"),
    Mistake("local", "dataset: digits", "dataset: digits\n  falaj:dataset: other.csv", 5,
            "falaj:dataset: given twice, in line 4 as 'digits' and in line 5 as 'other.csv'", "-"),
    Mistake("local", "    workers: 2", "    workers: 2\n    workers: 3", 9,
            "falaj:service.workers: given twice, in line 8 as 2 and in line 9 as 3", "-"),
    Mistake("local", "keepVersions: 5", "service.workers: 3", 10,
            "falaj:service.workers: given twice, as a dotted key and inside a section", "-"),
    Mistake("local", "keepVersions: 5", "keepVersions.x: 3", 10,
            "falaj:keepVersions: given {x: 3}; allowed: a whole number from 2 to 1000",
            "  falaj:keepVersions: 5"),
    Mistake("local", "keepVersions: 5", "keepVersion: 5", 10,
            "falaj:keepVersion: unknown key; did you mean keepVersions?",
            "  falaj:keepVersions: 5"),
    Mistake("local", "keepVersions: 5", "keepVersions: []", 10,
            "falaj:keepVersions: given []; allowed: a whole number from 2 to 1000", "-"),
    Mistake("local", "keepVersions: 5", "keepVersions: [5]", 10,
            "falaj:keepVersions: given [5]; allowed: a whole number from 2 to 1000",
            "  falaj:keepVersions: 5"),
    Mistake("local", "workers: 2", "workers:", 8,
            "falaj:service.workers: given nothing; allowed: a whole number", "-"),
    Mistake("local", "keepVersions: 5", "model: 1.0", 10,
            "falaj:model: given 1.0 without quotes, read as the number 1.0; allowed: 1 to 63 l",
            '  falaj:model: "1-0"'),
    Mistake("local", "  falaj:dataset: digits", "    falaj:dataset: digits", 4,
            "not valid YAML: ", "  falaj:dataset: digits"),
    Mistake("local", "    workers: 2", "   workers: 2", 8,
            "not valid YAML: ", "    workers: 2"),
    Mistake("local", "keepVersions: 5", "trainnig.seed: 5", 10,
            "falaj:trainnig: unknown key; did you mean training?", "  falaj:training.seed: 5"),
    Mistake("local", "keepVersions: 5", "task: regression", 10,
            "falaj:task: given 'regression', but the dataset digits is a classification", "-"),
    Mistake("local", "keepVersions: 5", "split: [0.2]", 10,
            "falaj:split: given [0.2]; allowed: a section of keys", "-"),
    Mistake("local", "width: 16", "7: 16", 9,
            "falaj:training.7: unknown key", "  falaj:training: {epochs: 3}"),
    Mistake("local", "config:", "confg:", 2, "confg: unknown; did you mean config?", "config:"),
    Mistake("local", "falaj:platform: local", "falja:platform: local", 3,
            "falja:platform: unknown namespace 'falja'; allowed: falaj, ",
            "  falaj:platform: local"),
    Mistake("local", "falaj:platform: local", "platform: local", 3,
            "config key 'platform' has no namespace; write it as falaj:platform",
            "  falaj:platform: local"),
    Mistake("table", "  falaj:target: churned\n", "falaj:target: churned\n", 4,
            "falaj:target: stands outside of `config:`; indent it below that",
            "  falaj:target: churned"),
    Mistake("table", "target: churned", "target: churnd", 4,
            "falaj:target: given 'churnd', but data/customers.csv has the columns age, region, "
            "churned; did you mean churned?", "  falaj:target: churned"),
    Mistake("table", "  falaj:target: churned\n", "", 1,
            "falaj:target: missing; the dataset data/customers.csv needs the column to predict",
            "  falaj:target: churned"),
    Mistake("table", "customers.csv", "custmers.csv", 3,
            "falaj:dataset: there is no file ", "  falaj:dataset: data/customers.csv"),
    Mistake("table", "customers.csv", "customers.xlsx", 3,
            "falaj:dataset: given 'data/customers.xlsx'; allowed: digits, or the path of a .csv",
            "  falaj:dataset: data/customers.csv"),
    # Foundations.
    Mistake("foundation", "platform: azure", "platform: AZURE", 2,
            "falaj:platform: given 'AZURE'; allowed: local, aws, azure, kubernetes",
            "  falaj:platform: azure"),
    Mistake("foundation", "region: uaenorth", "region: UAE North", 4,
            "falaj:region: given 'UAE North'; allowed on azure: uaenorth, uaecentral; did you m",
            "  falaj:region: uaenorth"),
    Mistake("foundation", "region: uaenorth", "region: westeurope", 4,
            "falaj:region: given 'westeurope'; allowed on azure: uaenorth, uaecentral; data and",
            "  falaj:region: uaenorth"),
    Mistake("foundation", "blueprint: foundation", "blueprint: fundation", 3,
            "falaj:blueprint: given 'fundation'; allowed: foundation, cluster, smb, platform, w",
            "  falaj:blueprint: foundation"),
    Mistake("foundation", "tenant: acme", "tenant: Acme Bank", 5,
            "falaj:tenant: given 'Acme Bank'; allowed: 2 to 20 lower-case letters, digits and ",
            "  falaj:tenant: acme-bank"),
    Mistake("foundation", "costCenter: it", "costCenter: 0042", 8,
            "falaj:costCenter: given 0042 without quotes, read as the number 34; put it in quo",
            '  falaj:costCenter: "0042"'),
    Mistake("foundation", "rotationDays: 180", "rotationDays: 30", 10,
            "falaj:keys.rotationDays: given 30; allowed: a whole number from 90 to 2560",
            "    rotationDays: 90"),
    Mistake("foundation", "redundancy: zone", "redundancy: Zone", 11,
            "falaj:storage.redundancy: given 'Zone'; allowed: local, zone, geo; did you mean zo",
            "  falaj:storage: {redundancy: zone, oldVersionDays: 30}"),
    Mistake("foundation", "trainer: []", "trainr: []", 14,
            "falaj:identity.members.trainr: given the name 'trainr'; allowed: provisioner, trai",
            "      trainer: []"),
    Mistake("foundation", "  falaj:owner: it@example.ae\n", "", 1,
            "falaj:owner: missing; allowed: 1 to 256 letters, digits, spaces",
            "  falaj:owner: platform@example.ae"),
    Mistake("foundation", "region: uaenorth", "region: uaenorth\n  falaj:region: uaecentral", 5,
            "falaj:region: given twice, in line 4 as 'uaenorth' and in line 5 as 'uaecentral'",
            "-"),
    # Clusters.
    Mistake("cluster", "gpu: H200", "gpu: H2000", 19,
            "falaj:gpuPools.h200.gpu: no GPU is called 'H2000'; did you mean H200?",
            "      gpu: H200"),
    Mistake("cluster", "gpu: H200", "gpu: H100", 19,
            "falaj:gpuPools.h200.gpu: aws/me-central-1 does not sell 8 x H100",
            "      gpu: H200"),
    Mistake("cluster", "maxNodes: 4", "maxNodes: 4000", 24,
            "falaj:gpuPools.h200.maxNodes: given 4000; allowed: a whole number from 1 to 450",
            "      maxNodes: 450"),
    Mistake("cluster", "maxNodes: 4", "maxNodes: 4\n      maxUnavailable: none", 25,
            "falaj:gpuPools.h200.maxUnavailable: given 'none'; allowed: a whole number from 1 to",
            "-"),
    Mistake("cluster", "maxNodes: 4", "maxNodes: 4\n      maxUnavailable: 500", 25,
            "falaj:gpuPools.h200.maxUnavailable: given 500; allowed: a whole number from 1 to 100",
            "      maxUnavailable: 100"),
    Mistake("cluster", "maxNodes: 4", "maxNodes: 4\n      maxSurge: 1", 25,
            "falaj:gpuPools.h200.maxSurge: given 1; allowed: 0, or at least 2 with the zones mec",
            "-"),
    Mistake("cluster", "minNodes: 2, maxNodes: 6", "minNodes: 9, maxNodes: 6", 16,
            "falaj:cpuPools.cpu.minNodes: given 9; allowed: at most maxNodes, which is 6; lower",
            "    cpu: {system: true, vcpu: 4, minNodes: 6, maxNodes: 6}"),
    Mistake("cluster", "fabric: efa", "fabric: infiniband", 21,
            "falaj:gpuPools.h200.fabric: given 'infiniband'; allowed: none, efa; infiniband exi",
            "      fabric: efa"),
    Mistake("cluster", "fabric: efa", "fabric: EFA", 21,
            "falaj:gpuPools.h200.fabric: given 'EFA'; allowed: none, efa, infiniband; did you m",
            "      fabric: efa"),
    Mistake("cluster", "[mec1-az1]", "[me-central-1a]", 22,
            "falaj:gpuPools.h200.zones[0]: given 'me-central-1a'; allowed: mec1-az1, mec1-az2, ",
            "      zones: [mec1-az1]"),
    Mistake("cluster", "[mec1-az1]", "[]", 22,
            "falaj:gpuPools.h200.zones: given []; allowed: ", "-"),
    Mistake("cluster", "      gpu: H200\n", "", 18,
            "falaj:gpuPools.h200.gpu: missing; allowed: ", "      gpu: H200"),
    Mistake("cluster", "gpu: H200", "gpu: null", 19,
            "falaj:gpuPools.h200.gpu: given nothing; allowed: ", "      gpu: H200"),
    Mistake("cluster", "      count: 8\n", "", 18,
            "falaj:gpuPools.h200.count: missing; allowed: a number above 0 up to 16",
            "      count: 1"),
    Mistake("cluster", "    h200:\n", "    H200-pool:\n", 18,
            "falaj:gpuPools.H200-pool: given the name 'H200-pool'; allowed: 1 to 12 lower-case ",
            "    h200pool:"),
    Mistake("cluster", "foundation: aws-foundation", "foundation: aws-foundatoin", 5,
            "falaj:foundation: given 'aws-foundatoin', no stack of this project has a file of t",
            "  falaj:foundation: aws-foundation"),
    Mistake("cluster", 'asOf: "2026-04-30"', "asOf: 2026-04-30", 8,
            "falaj:acknowledgeDegraded.asOf: given 2026-04-30 without quotes, read as a point i",
            '    asOf: "2026-04-30"'),
    Mistake("cluster", "2026-04-30", "2026-03-30", 8,
            "falaj:acknowledgeDegraded.asOf: region me-central-1 is reported as degraded as of ",
            '    asOf: "2026-04-30"'),
    Mistake("cluster", "falaj:region: me-central-1", "falaj:region: uaenorth", 4,
            "falaj:region: given 'uaenorth'; allowed on aws: me-central-1",
            "  falaj:region: me-central-1"),
    Mistake("cluster", "capacityGib: 2400", "capacityGib: 2500", 25,
            "falaj:fileSystem.capacityGib: given 2500; allowed: 1200, 2400 and multiples of 240",
            "  falaj:fileSystem: {capacityGib: 4800, throughputMbsPerTib: 250}"),
    Mistake("cluster", "throughputMbsPerTib: 250", "throughputMbsPerTib: 300", 25,
            "falaj:fileSystem.throughputMbsPerTib: given 300; allowed: 50, 100, 125, 200, 250",
            "  falaj:fileSystem: {capacityGib: 2400, throughputMbsPerTib: 250}"),
    Mistake("cluster", "environment: production", "environment: prod", 14,
            "falaj:environment: given 'prod'; allowed: development, test, production",
            "  falaj:environment: production"),
    # Small businesses' tiers.
    Mistake("smb", "minInstances: 1", "min_instances: 1", 15,
            "falaj:inference.min_instances: unknown key; did you mean minInstances?",
            "    minInstances: 1"),
    Mistake("smb", "emails: [it@example.ae]", "emails: []", 19,
            "falaj:budget.emails: given []; allowed: a list of 1 to 10 texts", "-"),
    Mistake("smb", "minInstances: 1", "minInstances: 5", 15,
            "falaj:inference.minInstances: given 5; allowed: at most maxInstances, which is 3",
            "    minInstances: 3"),
    Mistake("smb", "vcpu: 2", "vcpu: 7", 13,
            "falaj:inference.vcpu: given 7; allowed: 1, 2, 3, 4, for mode 'serverless'",
            "    vcpu: 2"),
    Mistake("smb", "mode: serverless", "mode: Serverless", 12,
            "falaj:inference.mode: given 'Serverless'; allowed: instances, serverless",
            "    mode: serverless"),
    Mistake("smb", "model: digits", "model: Digits", 11,
            "falaj:inference.model: given 'Digits'; allowed: 1 to 64 lower-case letters and dig",
            "    model: digits"),
    Mistake("smb", "model: digits", "model: digits\n    version: 3", 12,
            "falaj:inference.version: given 3, without packageDigest, keysDigest, which are of t",
            "-"),
    Mistake("smb", "[it@example.ae]", "[it]", 19,
            "falaj:budget.emails[0]: given 'it'; allowed: an e-mail address",
            "    emails: [ops@example.ae]"),
    Mistake("smb", "monthlyUsd: 500", "monthlyUsd: five hundred", 18,
            "falaj:budget.monthlyUsd: given 'five hundred'; allowed: a number from 1 to 1000000",
            "    monthlyUsd: 1"),
    Mistake("smb", "{purpose: serving}", "{purpose: serving, zones: [uaenorth-1]}", 9,
            "falaj:network.zones[0]: given 'uaenorth-1'; allowed: 1, 2, 3",
            '  falaj:network: {purpose: serving, zones: ["1"]}'),
    Mistake("smb", "{purpose: serving}", "{purpose: serving, cidr: 8.8.8.0/22}", 9,
            "falaj:network.cidr: given '8.8.8.0/22'; allowed: a private range",
            "  falaj:network: {purpose: serving}"),
    # Platforms in clusters.
    Mistake("platform", "opencost:", "opncost:", 16,
            "falaj:installation.addons.opncost: unknown key; did you mean opencost?",
            "      opencost: {gpu: 2.9, cpu: 0.031, memoryGib: 0.0042}"),
    Mistake("platform", "gpu-operator: {driver: false}", "gpu-operator: {driver: flase}", 14,
            "falaj:installation.addons.gpu-operator.driver: given 'flase'; allowed: true or fal",
            "      gpu-operator: {driver: false}"),
    Mistake("platform", ", memoryGib: 0.0042", "", 16,
            "falaj:installation.addons.opencost.memoryGib: missing; the catalogue has no such p",
            None),
    Mistake("platform", "nvidia.com/gpu: 32", "nvidia.com/gpu: 65", 20,
            "falaj:queues.pools.h200: nvidia.com/gpu: the quotas add up to 65 (acme 65); allowed",
            None),
    Mistake("platform", "registry.example.ae/falaj", "Registry Example", 6,
            "falaj:registry: given 'Registry Example'; allowed: a host in lower case",
            "  falaj:registry: registry-example"),
    Mistake("platform", "waivers/platform.yaml", "waivers/platfrm.yaml", 26,
            "falaj:policies.waivers: there is no file stacks/waivers/platfrm.yaml in the projec",
            "    waivers: stacks/waivers/platform.yaml"),
    Mistake("platform", "waivers: stacks/waivers/platform.yaml", "rules: [stacks/acme.yaml]", 26,
            "falaj:policies.rules[0]: there is no file stacks/acme.yaml in the project's folder",
            "    rules: []"),
    Mistake("platform", "[abudhabi-dc1]", "[eu-west-1]", 25,
            "falaj:policies.allowedSites: eu-west-1 can't be one's own site: a cloud's regions ",
            "-"),
    Mistake("platform", "  falaj:context: abudhabi-dc1\n", "", 1,
            "falaj:context: missing; expected the kubeconfig's context of the existing cluster",
            "  falaj:context: main"),
    # Workloads in clusters.
    Mistake("workloads", "cluster: azure-cluster", "cluster: azure-clutser", 5,
            "falaj:cluster: given 'azure-clutser', no stack of this project has a file of that ",
            "  falaj:cluster: azure-cluster"),
    Mistake("workloads", "fabric: infiniband", "fabric: efa", 17,
            "falaj:trainingJobs.credit.fabric: ", "      fabric: none"),
    Mistake("workloads", "flavor: h200", "flavour: h200", 14,
            "falaj:trainingJobs.credit.flavour: unknown key; did you mean flavor?",
            "      flavor: h200"),
    Mistake("workloads", "nodes: 2", "nodes: two", 15,
            "falaj:trainingJobs.credit.nodes: given 'two'; allowed: a whole number", "-"),
    Mistake("workloads", "nodes: 2", "nodes: 0", 15,
            "falaj:trainingJobs.credit.nodes: given 0; allowed: a whole number from 1 to 512",
            "      nodes: 1"),
    Mistake("workloads", "fabric: infiniband", "parallel: {tensor: 3}", 17,
            "falaj:trainingJobs.credit.parallel.tensor: given 3; allowed: a divisor of ", "-"),
    Mistake("workloads", "fabric: infiniband", "parallel: {shard: 3}", 17,
            "falaj:trainingJobs.credit.parallel: given shard 3 x tensor 1 x pipeline 1 = 3, but ",
            "-"),
    Mistake("workloads", '["--epochs", "20"]', "--epochs 20", 19,
            "falaj:trainingJobs.credit.arguments: given '--epochs 20'; allowed: a list of texts",
            '      arguments: ["--epochs 20"]'),
]  # fmt: skip

"""Regions and zones as literals, so that a type checker rejects an Azure zone on AWS. Only type checkers read this module.

`python -m tests.typing.places` generates it from the clouds' region tables; a test compares them.
"""

from typing import Literal

AwsRegion = Literal[
    "us-east-1", "us-east-2", "us-west-1", "us-west-2", "af-south-1", "ap-east-1", "ap-south-1", "ap-south-2",
    "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3",
    "ap-southeast-4", "ap-southeast-5", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2",
    "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1", "me-central-1",
    "me-south-1", "mx-central-1", "sa-east-1", "us-gov-east-1", "us-gov-west-1",
]  # fmt: skip
"""Regions of AWS."""

AwsZone = Literal[
    "use1-az1", "use1-az2", "use1-az3", "use1-az4", "use1-az5", "use1-az6", "use2-az1", "use2-az2", "use2-az3",
    "use2-az4", "use2-az5", "use2-az6", "usw1-az1", "usw1-az2", "usw1-az3", "usw1-az4", "usw1-az5", "usw1-az6",
    "usw2-az1", "usw2-az2", "usw2-az3", "usw2-az4", "usw2-az5", "usw2-az6", "afs1-az1", "afs1-az2", "afs1-az3",
    "afs1-az4", "afs1-az5", "afs1-az6", "ape1-az1", "ape1-az2", "ape1-az3", "ape1-az4", "ape1-az5", "ape1-az6",
    "aps1-az1", "aps1-az2", "aps1-az3", "aps1-az4", "aps1-az5", "aps1-az6", "aps2-az1", "aps2-az2", "aps2-az3",
    "aps2-az4", "aps2-az5", "aps2-az6", "apne1-az1", "apne1-az2", "apne1-az3", "apne1-az4", "apne1-az5", "apne1-az6",
    "apne2-az1", "apne2-az2", "apne2-az3", "apne2-az4", "apne2-az5", "apne2-az6", "apne3-az1", "apne3-az2",
    "apne3-az3", "apne3-az4", "apne3-az5", "apne3-az6", "apse1-az1", "apse1-az2", "apse1-az3", "apse1-az4",
    "apse1-az5", "apse1-az6", "apse2-az1", "apse2-az2", "apse2-az3", "apse2-az4", "apse2-az5", "apse2-az6",
    "apse3-az1", "apse3-az2", "apse3-az3", "apse3-az4", "apse3-az5", "apse3-az6", "apse4-az1", "apse4-az2",
    "apse4-az3", "apse4-az4", "apse4-az5", "apse4-az6", "apse5-az1", "apse5-az2", "apse5-az3", "apse5-az4",
    "apse5-az5", "apse5-az6", "apse7-az1", "apse7-az2", "apse7-az3", "apse7-az4", "apse7-az5", "apse7-az6",
    "cac1-az1", "cac1-az2", "cac1-az3", "cac1-az4", "cac1-az5", "cac1-az6", "caw1-az1", "caw1-az2", "caw1-az3",
    "caw1-az4", "caw1-az5", "caw1-az6", "euc1-az1", "euc1-az2", "euc1-az3", "euc1-az4", "euc1-az5", "euc1-az6",
    "euc2-az1", "euc2-az2", "euc2-az3", "euc2-az4", "euc2-az5", "euc2-az6", "eun1-az1", "eun1-az2", "eun1-az3",
    "eun1-az4", "eun1-az5", "eun1-az6", "eus1-az1", "eus1-az2", "eus1-az3", "eus1-az4", "eus1-az5", "eus1-az6",
    "eus2-az1", "eus2-az2", "eus2-az3", "eus2-az4", "eus2-az5", "eus2-az6", "euw1-az1", "euw1-az2", "euw1-az3",
    "euw1-az4", "euw1-az5", "euw1-az6", "euw2-az1", "euw2-az2", "euw2-az3", "euw2-az4", "euw2-az5", "euw2-az6",
    "euw3-az1", "euw3-az2", "euw3-az3", "euw3-az4", "euw3-az5", "euw3-az6", "ilc1-az1", "ilc1-az2", "ilc1-az3",
    "ilc1-az4", "ilc1-az5", "ilc1-az6", "mec1-az1", "mec1-az2", "mec1-az3", "mec1-az4", "mec1-az5", "mec1-az6",
    "mes1-az1", "mes1-az2", "mes1-az3", "mes1-az4", "mes1-az5", "mes1-az6", "mxc1-az1", "mxc1-az2", "mxc1-az3",
    "mxc1-az4", "mxc1-az5", "mxc1-az6", "sae1-az1", "sae1-az2", "sae1-az3", "sae1-az4", "sae1-az5", "sae1-az6",
    "usge1-az1", "usge1-az2", "usge1-az3", "usge1-az4", "usge1-az5", "usge1-az6", "usgw1-az1", "usgw1-az2",
    "usgw1-az3", "usgw1-az4", "usgw1-az5", "usgw1-az6", "use1-atl2-az1", "us-east-1-dfw-2a",
]  # fmt: skip
"""Zones of AWS by ID."""

AzureRegion = Literal[
    "australiaeast", "australiasoutheast", "austriaeast", "brazilsouth", "canadacentral", "canadaeast",
    "centralindia", "centralus", "eastasia", "eastus", "eastus2", "francecentral", "francesouth", "germanynorth",
    "germanywestcentral", "indonesiacentral", "israelcentral", "italynorth", "japaneast", "japanwest", "koreacentral",
    "koreasouth", "malaysiawest", "mexicocentral", "newzealandnorth", "northcentralus", "northeurope", "norwayeast",
    "norwaywest", "polandcentral", "qatarcentral", "southafricanorth", "southafricawest", "southcentralus",
    "southeastasia", "southeastus", "southindia", "spaincentral", "swedencentral", "swedensouth", "switzerlandnorth",
    "switzerlandwest", "uaecentral", "uaenorth", "uksouth", "ukwest", "westcentralus", "westeurope", "westus",
    "westus2", "westus3",
]  # fmt: skip
"""Regions of Azure."""

AzureZone = Literal[
    "1", "2", "3",
]  # fmt: skip
"""Zones of Azure."""

GcpRegion = Literal[
    "africa-south1", "asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3",
    "asia-south1", "asia-south2", "asia-southeast1", "asia-southeast2", "australia-southeast1",
    "australia-southeast2", "europe-central2", "europe-north1", "europe-north2", "europe-southwest1", "europe-west1",
    "europe-west10", "europe-west12", "europe-west2", "europe-west3", "europe-west4", "europe-west6", "europe-west8",
    "europe-west9", "me-central1", "me-central2", "me-west1", "northamerica-northeast1", "northamerica-northeast2",
    "northamerica-south1", "southamerica-east1", "southamerica-west1", "us-central1", "us-east1", "us-east4",
    "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4",
]  # fmt: skip
"""Regions of Google Cloud."""

GcpZone = Literal[
    "africa-south1-a", "africa-south1-b", "africa-south1-c", "africa-south1-d", "africa-south1-f", "asia-east1-a",
    "asia-east1-b", "asia-east1-c", "asia-east1-d", "asia-east1-f", "asia-east2-a", "asia-east2-b", "asia-east2-c",
    "asia-east2-d", "asia-east2-f", "asia-northeast1-a", "asia-northeast1-b", "asia-northeast1-c",
    "asia-northeast1-d", "asia-northeast1-f", "asia-northeast2-a", "asia-northeast2-b", "asia-northeast2-c",
    "asia-northeast2-d", "asia-northeast2-f", "asia-northeast3-a", "asia-northeast3-b", "asia-northeast3-c",
    "asia-northeast3-d", "asia-northeast3-f", "asia-south1-a", "asia-south1-b", "asia-south1-c", "asia-south1-d",
    "asia-south1-f", "asia-south2-a", "asia-south2-b", "asia-south2-c", "asia-south2-d", "asia-south2-f",
    "asia-southeast1-a", "asia-southeast1-b", "asia-southeast1-c", "asia-southeast1-d", "asia-southeast1-f",
    "asia-southeast2-a", "asia-southeast2-b", "asia-southeast2-c", "asia-southeast2-d", "asia-southeast2-f",
    "australia-southeast1-a", "australia-southeast1-b", "australia-southeast1-c", "australia-southeast1-d",
    "australia-southeast1-f", "australia-southeast2-a", "australia-southeast2-b", "australia-southeast2-c",
    "australia-southeast2-d", "australia-southeast2-f", "europe-central2-a", "europe-central2-b", "europe-central2-c",
    "europe-central2-d", "europe-central2-f", "europe-north1-a", "europe-north1-b", "europe-north1-c",
    "europe-north1-d", "europe-north1-f", "europe-north2-a", "europe-north2-b", "europe-north2-c", "europe-north2-d",
    "europe-north2-f", "europe-southwest1-a", "europe-southwest1-b", "europe-southwest1-c", "europe-southwest1-d",
    "europe-southwest1-f", "europe-west1-a", "europe-west1-b", "europe-west1-c", "europe-west1-d", "europe-west1-f",
    "europe-west10-a", "europe-west10-b", "europe-west10-c", "europe-west10-d", "europe-west10-f", "europe-west12-a",
    "europe-west12-b", "europe-west12-c", "europe-west12-d", "europe-west12-f", "europe-west2-a", "europe-west2-b",
    "europe-west2-c", "europe-west2-d", "europe-west2-f", "europe-west3-a", "europe-west3-b", "europe-west3-c",
    "europe-west3-d", "europe-west3-f", "europe-west4-a", "europe-west4-b", "europe-west4-c", "europe-west4-d",
    "europe-west4-f", "europe-west6-a", "europe-west6-b", "europe-west6-c", "europe-west6-d", "europe-west6-f",
    "europe-west8-a", "europe-west8-b", "europe-west8-c", "europe-west8-d", "europe-west8-f", "europe-west9-a",
    "europe-west9-b", "europe-west9-c", "europe-west9-d", "europe-west9-f", "me-central1-a", "me-central1-b",
    "me-central1-c", "me-central1-d", "me-central1-f", "me-central2-a", "me-central2-b", "me-central2-c",
    "me-central2-d", "me-central2-f", "me-west1-a", "me-west1-b", "me-west1-c", "me-west1-d", "me-west1-f",
    "northamerica-northeast1-a", "northamerica-northeast1-b", "northamerica-northeast1-c",
    "northamerica-northeast1-d", "northamerica-northeast1-f", "northamerica-northeast2-a",
    "northamerica-northeast2-b", "northamerica-northeast2-c", "northamerica-northeast2-d",
    "northamerica-northeast2-f", "northamerica-south1-a", "northamerica-south1-b", "northamerica-south1-c",
    "northamerica-south1-d", "northamerica-south1-f", "southamerica-east1-a", "southamerica-east1-b",
    "southamerica-east1-c", "southamerica-east1-d", "southamerica-east1-f", "southamerica-west1-a",
    "southamerica-west1-b", "southamerica-west1-c", "southamerica-west1-d", "southamerica-west1-f", "us-central1-a",
    "us-central1-b", "us-central1-c", "us-central1-d", "us-central1-f", "us-east1-a", "us-east1-b", "us-east1-c",
    "us-east1-d", "us-east1-f", "us-east4-a", "us-east4-b", "us-east4-c", "us-east4-d", "us-east4-f", "us-east5-a",
    "us-east5-b", "us-east5-c", "us-east5-d", "us-east5-f", "us-south1-a", "us-south1-b", "us-south1-c",
    "us-south1-d", "us-south1-f", "us-west1-a", "us-west1-b", "us-west1-c", "us-west1-d", "us-west1-f", "us-west2-a",
    "us-west2-b", "us-west2-c", "us-west2-d", "us-west2-f", "us-west3-a", "us-west3-b", "us-west3-c", "us-west3-d",
    "us-west3-f", "us-west4-a", "us-west4-b", "us-west4-c", "us-west4-d", "us-west4-f",
]  # fmt: skip
"""Zones of Google Cloud."""

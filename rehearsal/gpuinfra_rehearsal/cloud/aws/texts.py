"""Allowed characters and lengths of text fields on AWS.

For EC2, they are from the documentation text of the API model (botocore, service `ec2`). For other services, they are from `pattern`.
A test compares both with this table. Retrieved 2026-11-22.
"""

from __future__ import annotations

from gpuinfra_rehearsal.cloud.core.texts import Text

_EC2_API = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/"
_EC2_TEXT = r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=;{}!$*&]*"
_RULE_TEXT = r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=;{}!$*]*"
"""`UserIdGroupPair.Description` allows no `&`; `IpRange.Description` does. The smaller set is valid for both."""
_TAG = r"[\w\s.:/=+\-@]*"
"""Letters, digits, spaces and `_ . : / = + - @`."""
_TAG_PAGE = "https://docs.aws.amazon.com/tag-editor/latest/userguide/best-practices-and-strats.html"
_IAM_TEXT = r"[\t\n\r\x20-\x7e\xa1-\xff]*"

TEXTS = (
    Text(types="aws:ec2/securityGroup:SecurityGroup", path="description", form=_EC2_TEXT, most=255,
         page=_EC2_API + "API_CreateSecurityGroup.html"),
    Text(types="aws:ec2/securityGroup:SecurityGroup", path="name", form=rf"(?!sg-){_EC2_TEXT}", most=255, least=1,
         page=_EC2_API + "API_CreateSecurityGroup.html"),
    Text(types="aws:vpc/securityGroup*Rule:*", path="description", form=_RULE_TEXT, most=255,
         page=_EC2_API + "API_UserIdGroupPair.html"),
    Text(types="aws:ec2/launchTemplate:LaunchTemplate", path="name", form=r"[a-zA-Z0-9().\-/_]+", most=128, least=3,
         page=_EC2_API + "API_CreateLaunchTemplate.html", code="InvalidLaunchTemplateName.MalformedException"),
    Text(types="aws:ec2/launchTemplate:LaunchTemplate", path="description", form=r"[^\x00-\x1f]*", most=255,
         page=_EC2_API + "API_CreateLaunchTemplate.html"),
    Text(types="aws:ec2/launchTemplate:LaunchTemplate", path="networkInterfaces[].description", form=r"[^\x00-\x1f]*", most=255,
         page=_EC2_API + "API_CreateNetworkInterface.html"),
    Text(types="aws:ec2/placementGroup:PlacementGroup", path="name", form=r"[\x20-\x7e]+", most=255, least=1,
         page=_EC2_API + "API_CreatePlacementGroup.html"),
    Text(types="aws:autoscaling/group:Group", path="name", form=r"[\x21-\x39\x3b-\x7e]+", most=255, least=1,
         page="https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html", code="ValidationError"),
    Text(types="aws:autoscaling/schedule:Schedule", path="scheduledActionName", form=r"[^\x00-\x08\x0b\x0c\x0e-\x1f]+", most=255, least=1,
         page="https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutScheduledUpdateGroupAction.html", code="ValidationError"),
    Text(types="aws:autoscaling/group:Group", path="tags[].key", form=rf"(?!aws:){_TAG}", most=127, least=1, page=_TAG_PAGE, code="ValidationError"),
    Text(types="aws:autoscaling/group:Group", path="tags[].value", form=_TAG, most=256, page=_TAG_PAGE, code="ValidationError"),
    Text(types="aws:budgets/budget:Budget", path="name", form=r"(?!.*/action/)[^:\\]+", most=100, least=1,
         page="https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_budgets_Budget.html", code="InvalidParameterException"),
    Text(types="aws:budgets/budget:Budget", path="costFilters[].name", form=r"[A-Za-z]+", most=2147483647, least=1,
         page="https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_budgets_Budget.html", code="InvalidParameterException"),
    Text(types="aws:cloudtrail/trail:Trail", path="name", form=r"(?!\d+\.\d+\.\d+\.\d+$)[a-zA-Z0-9]+([._-][a-zA-Z0-9]+)*", most=128, least=3,
         page="https://docs.aws.amazon.com/awscloudtrail/latest/APIReference/API_CreateTrail.html", code="InvalidTrailNameException"),
    Text(types="aws:cloudtrail/trail:Trail", path="advancedEventSelectors[].name", form=r".*", most=1000,
         page="https://docs.aws.amazon.com/awscloudtrail/latest/APIReference/API_AdvancedEventSelector.html", code="InvalidEventSelectorsException"),
    Text(types="aws:cloudwatch/eventRule:EventRule", path="name", form=r"[.\-_A-Za-z0-9]+", most=64, least=1,
         page="https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html", code="ValidationException"),
    Text(types="aws:cloudwatch/eventRule:EventRule", path="description", form=r"(?s:.*)", most=512,
         page="https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html", code="ValidationException"),
    Text(types="aws:cloudwatch/eventTarget:EventTarget", path="targetId", form=r"[.\-_A-Za-z0-9]+", most=64, least=1,
         page="https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_Target.html", code="ValidationException"),
    Text(types="aws:cloudwatch/logGroup:LogGroup", path="name", form=r"[.\-_/#A-Za-z0-9]+", most=512, least=1,
         page="https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html", code="InvalidParameterException"),
    Text(types="aws:cloudwatch/logMetricFilter:LogMetricFilter", path="metricTransformation.name", form=r"[^:*$]*", most=255,
         page="https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_MetricTransformation.html", code="InvalidParameterException"),
    Text(types="aws:efs/fileSystem:FileSystem", path="creationToken", form=r".+", most=64, least=1,
         page="https://docs.aws.amazon.com/efs/latest/ug/API_CreateFileSystem.html", code="BadRequest"),
    Text(types="aws:amp/workspace:Workspace", path="alias", form=r"(?s:.*)", most=100, least=1,
         page="https://docs.aws.amazon.com/prometheus/latest/APIReference/API_CreateWorkspace.html", code="ValidationException"),
    Text(types="aws:amp/ruleGroupNamespace:RuleGroupNamespace", path="name", form=r".*[0-9A-Za-z][-.0-9A-Z_a-z]*.*", most=64, least=1,
         page="https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-aps-rulegroupsnamespace.html", code="ValidationException"),
    Text(types="aws:iam/role:Role", path="description", form=_IAM_TEXT, most=1000,
         page="https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html", code="ValidationError"),
    Text(types="aws:iam/role:Role", path="name", form=r"[\w+=,.@-]+", most=64, least=1,
         page="https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html", code="ValidationError"),
    Text(types="aws:iam/rolePolicy:RolePolicy", path="name", form=r"[\w+=,.@-]+", most=128, least=1,
         page="https://docs.aws.amazon.com/IAM/latest/APIReference/API_PutRolePolicy.html", code="ValidationError"),
    Text(types="aws:iam/instanceProfile:InstanceProfile", path="name", form=r"[\w+=,.@-]+", most=128, least=1,
         page="https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateInstanceProfile.html", code="ValidationError"),
    Text(types="aws:kms/key:Key", path="description", form=r"(?s:.*)", most=8192,
         page="https://docs.aws.amazon.com/kms/latest/APIReference/API_CreateKey.html", code="ValidationException"),
    Text(types="aws:kms/alias:Alias", path="name", form=r"alias/(?!aws/)[a-zA-Z0-9/_-]+", most=256, least=1,
         page="https://docs.aws.amazon.com/kms/latest/APIReference/API_CreateAlias.html", code="InvalidAliasNameException"),
    Text(types="aws:s3/bucket:Bucket", path="bucket", form=r"(?!xn--)(?!sthree-)(?!amzn-s3-demo-)(?!.*\.\.)(?!.*(-s3alias|--ol-s3|\.mrap|--x-s3|--table-s3)$)[a-z0-9][a-z0-9.-]*[a-z0-9]", most=63, least=3,
         page="https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html", code="InvalidBucketName"),
    Text(types="aws:ssm/parameter:Parameter", path="name", form=r"/(?!(?i:aws|ssm))[a-zA-Z0-9_.\-]+(/[a-zA-Z0-9_.\-]+){0,14}", most=1011, least=1,
         page="https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html", code="ValidationException"),
    Text(types="aws:ssm/parameter:Parameter", path="description", form=r"(?s:.*)", most=1024,
         page="https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html", code="ValidationException"),
    # CloudTrail does not accept an empty value.
    Text(types="aws:cloudtrail/trail:Trail", path="tags.*", form=_TAG, most=256, least=1,
         page="https://docs.aws.amazon.com/awscloudtrail/latest/APIReference/API_Tag.html", code="InvalidTagParameterException"),
    # `ec2:Tag` has the shortest key, with 127 characters.
    Text(types="aws:*", path="**.tags.#", form=rf"(?!aws:){_TAG}", most=127, least=1, page=_TAG_PAGE),
    Text(types="aws:*", path="**.tags.*", form=_TAG, most=256, page=_TAG_PAGE),
)  # fmt: skip
"""The limits of each text field. The first row that matches an input applies."""

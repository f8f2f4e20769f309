"""Calls of EC2 and Auto Scaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.clouds.aws.requests import Call, Inputs, flag, mapper, pascal


@mapper("ec2/vpc:Vpc")
def _vpc(inputs: Inputs) -> Iterator[Call]:
    yield Call("ec2", "CreateVpc", inputs.some(CidrBlock="cidrBlock") | inputs.tagged("vpc"))
    for ours, api in (("enableDnsSupport", "EnableDnsSupport"), ("enableDnsHostnames", "EnableDnsHostnames")):
        yield Call("ec2", "ModifyVpcAttribute", {"VpcId": "vpc-1", api: {"Value": inputs.take(ours)}})


@mapper("ec2/subnet:Subnet")
def _subnet(inputs: Inputs) -> Iterator[Call]:
    public = inputs.take("mapPublicIpOnLaunch")
    named = inputs.take("enableResourceNameDnsARecordOnLaunch")
    names = {"VpcId": "vpcId", "CidrBlock": "cidrBlock", "AvailabilityZoneId": "availabilityZoneId"}
    yield Call("ec2", "CreateSubnet", inputs.some(**names) | inputs.tagged("subnet"))
    yield Call("ec2", "ModifySubnetAttribute", {"SubnetId": "subnet-1", "MapPublicIpOnLaunch": {"Value": public}})
    change = {"SubnetId": "subnet-1", "EnableResourceNameDnsARecordOnLaunch": {"Value": named}}
    yield Call("ec2", "ModifySubnetAttribute", change)


@mapper("ec2/internetGateway:InternetGateway")
def _internet(inputs: Inputs) -> Iterator[Call]:
    yield Call("ec2", "CreateInternetGateway", inputs.tagged("internet-gateway"))
    yield Call("ec2", "AttachInternetGateway", {"InternetGatewayId": "igw-1", **inputs.some(VpcId="vpcId")})


@mapper("ec2/amiCopy:AmiCopy")
def _image_copy(inputs: Inputs) -> Iterator[Call]:
    names = {
        "SourceImageId": "sourceAmiId",
        "SourceRegion": "sourceAmiRegion",
        "Description": "description",
        "Encrypted": "encrypted",
        "KmsKeyId": "kmsKeyId",
    }
    yield Call("ec2", "CopyImage", {**inputs.some(**names), "Name": "generated"})
    tags = inputs.tagged("image")["TagSpecifications"][0]["Tags"]
    yield Call("ec2", "CreateTags", {"Resources": ["ami-1"], "Tags": tags})


@mapper("ec2/eip:Eip")
def _address(inputs: Inputs) -> Iterator[Call]:
    yield Call("ec2", "AllocateAddress", inputs.some(Domain="domain") | inputs.tagged("elastic-ip"))


@mapper("ec2/natGateway:NatGateway")
def _nat(inputs: Inputs) -> Iterator[Call]:
    names = {"SubnetId": "subnetId", "AllocationId": "allocationId"}
    yield Call("ec2", "CreateNatGateway", inputs.some(**names) | inputs.tagged("natgateway"))


@mapper("ec2/routeTable:RouteTable")
def _table(inputs: Inputs) -> Iterator[Call]:
    yield Call("ec2", "CreateRouteTable", inputs.some(VpcId="vpcId") | inputs.tagged("route-table"))


@mapper("ec2/route:Route")
def _route(inputs: Inputs) -> Iterator[Call]:
    names = {
        "RouteTableId": "routeTableId",
        "DestinationCidrBlock": "destinationCidrBlock",
        "GatewayId": "gatewayId",
        "NatGatewayId": "natGatewayId",
    }
    yield Call("ec2", "CreateRoute", inputs.some(**names))


@mapper("ec2/routeTableAssociation:RouteTableAssociation")
def _association(inputs: Inputs) -> Iterator[Call]:
    yield Call("ec2", "AssociateRouteTable", inputs.some(RouteTableId="routeTableId", SubnetId="subnetId"))


@mapper("ec2/vpcEndpoint:VpcEndpoint")
def _endpoint(inputs: Inputs) -> Iterator[Call]:
    names = {
        "VpcId": "vpcId",
        "ServiceName": "serviceName",
        "VpcEndpointType": "vpcEndpointType",
        "RouteTableIds": "routeTableIds",
        "SubnetIds": "subnetIds",
        "SecurityGroupIds": "securityGroupIds",
        "PrivateDnsEnabled": "privateDnsEnabled",
    }
    yield Call("ec2", "CreateVpcEndpoint", inputs.some(**names) | inputs.tagged("vpc-endpoint"))


@mapper("ec2/flowLog:FlowLog")
def _flow_log(inputs: Inputs) -> Iterator[Call]:
    names = {
        "TrafficType": "trafficType",
        "LogDestinationType": "logDestinationType",
        "LogDestination": "logDestination",
        "DeliverLogsPermissionArn": "iamRoleArn",
        "MaxAggregationInterval": "maxAggregationInterval",
    }
    of = {"ResourceIds": [inputs.take("vpcId")], "ResourceType": "VPC"}
    yield Call("ec2", "CreateFlowLogs", of | inputs.some(**names) | inputs.tagged("vpc-flow-log"))


@mapper("ec2/securityGroup:SecurityGroup")
def _security_group(inputs: Inputs) -> Iterator[Call]:
    inputs.take("revokeRulesOnDelete")  # what the provider does before it deletes
    given = inputs.take("name") if "name" in inputs.left else inputs.name
    params = {"GroupName": given, **inputs.some(Description="description", VpcId="vpcId")}
    yield Call("ec2", "CreateSecurityGroup", params | inputs.tagged("security-group"))


def _rule(inputs: Inputs, operation: str) -> Iterator[Call]:
    permission: dict[str, Any] = inputs.some(IpProtocol="ipProtocol", FromPort="fromPort", ToPort="toPort")
    why = inputs.take("description")
    if "referencedSecurityGroupId" in inputs.left:
        permission["UserIdGroupPairs"] = [{"GroupId": inputs.take("referencedSecurityGroupId"), "Description": why}]
    if "cidrIpv4" in inputs.left:
        permission["IpRanges"] = [{"CidrIp": inputs.take("cidrIpv4"), "Description": why}]
    params = {"GroupId": inputs.take("securityGroupId"), "IpPermissions": [permission]}
    yield Call("ec2", operation, params | inputs.tagged("security-group-rule"))


@mapper("vpc/securityGroupIngressRule:SecurityGroupIngressRule")
def _in(inputs: Inputs) -> Iterator[Call]:
    yield from _rule(inputs, "AuthorizeSecurityGroupIngress")


@mapper("vpc/securityGroupEgressRule:SecurityGroupEgressRule")
def _out(inputs: Inputs) -> Iterator[Call]:
    yield from _rule(inputs, "AuthorizeSecurityGroupEgress")


@mapper("ebs/volume:Volume")
def _volume(inputs: Inputs) -> Iterator[Call]:
    names = {
        "AvailabilityZone": "availabilityZone",
        "Size": "size",
        "VolumeType": "type",
        "Encrypted": "encrypted",
        "KmsKeyId": "kmsKeyId",
    }
    yield Call("ec2", "CreateVolume", inputs.some(**names) | inputs.tagged("volume"))


@mapper("ec2/placementGroup:PlacementGroup")
def _placement(inputs: Inputs) -> Iterator[Call]:
    params = {"GroupName": inputs.name, **inputs.some(Strategy="strategy")}
    yield Call("ec2", "CreatePlacementGroup", params | inputs.tagged("placement-group"))


@mapper("ec2/launchTemplate:LaunchTemplate")
def _template(inputs: Inputs) -> Iterator[Call]:
    inputs.take("updateDefaultVersion")  # a second call that names the version only
    data = inputs.some(
        ImageId="imageId",
        InstanceType="instanceType",
        IamInstanceProfile="iamInstanceProfile",
        MetadataOptions="metadataOptions",
        Monitoring="monitoring",
        CapacityReservationSpecification="capacityReservationSpecification",
        InstanceMarketOptions="instanceMarketOptions",
        UserData="userData",
    )
    data["NetworkInterfaces"] = [_interface(one) for one in inputs.take("networkInterfaces")]
    data["BlockDeviceMappings"] = [_disk(one) for one in inputs.take("blockDeviceMappings")]
    data["TagSpecifications"] = [
        {
            "ResourceType": one["resourceType"],
            "Tags": [{"Key": key, "Value": value} for key, value in one["tags"].items()],
        }
        for one in inputs.take("tagSpecifications")
    ]
    params = {
        "LaunchTemplateName": inputs.name,
        "VersionDescription": inputs.take("description"),
        "LaunchTemplateData": data,
    }
    yield Call("ec2", "CreateLaunchTemplate", params | inputs.tagged("launch-template"))


def _interface(ours: dict[str, Any]) -> dict[str, Any]:
    params = pascal(ours)
    params["Groups"] = params.pop("SecurityGroups")
    params["DeleteOnTermination"] = flag(params["DeleteOnTermination"])
    if "AssociatePublicIpAddress" in params:
        params["AssociatePublicIpAddress"] = flag(params["AssociatePublicIpAddress"])
    return params


def _disk(ours: dict[str, Any]) -> dict[str, Any]:
    params = pascal(ours)
    for name in ("Encrypted", "DeleteOnTermination"):
        params["Ebs"][name] = flag(params["Ebs"][name])
    return params


@mapper("autoscaling/group:Group")
def _group(inputs: Inputs) -> Iterator[Call]:
    inputs.take("waitForCapacityTimeout")  # how long the provider waits
    inputs.take("ignoreFailedScalingActivities")  # and what it makes of a failure
    refresh = inputs.take("instanceRefresh")
    name: dict[str, Any] = {"AutoScalingGroupName": inputs.name}
    tags = [
        {**pascal(tag), "ResourceId": inputs.name, "ResourceType": "auto-scaling-group"} for tag in inputs.take("tags")
    ]
    template = inputs.take("launchTemplate")
    if template:
        name["LaunchTemplate"] = {"LaunchTemplateId": template["id"], "Version": template["version"]}
    params = inputs.some(
        MinSize="minSize",
        MaxSize="maxSize",
        DesiredCapacity="desiredCapacity",
        MixedInstancesPolicy="mixedInstancesPolicy",
        CapacityRebalance="capacityRebalance",
        CapacityReservationSpecification="capacityReservationSpecification",
        PlacementGroup="placementGroup",
        HealthCheckType="healthCheckType",
        HealthCheckGracePeriod="healthCheckGracePeriod",
        TerminationPolicies="terminationPolicies",
    )
    subnets = {"VPCZoneIdentifier": ",".join(inputs.take("vpcZoneIdentifiers"))}
    yield Call("autoscaling", "CreateAutoScalingGroup", name | params | subnets | {"Tags": tags})
    preferences = pascal(refresh["preferences"])
    for seconds in ("InstanceWarmup", "CheckpointDelay"):
        preferences[seconds] = int(preferences[seconds])
    started = {"AutoScalingGroupName": inputs.name, "Strategy": refresh["strategy"], "Preferences": preferences}
    yield Call("autoscaling", "StartInstanceRefresh", started)


@mapper("autoscaling/schedule:Schedule")
def _schedule(inputs: Inputs) -> Iterator[Call]:
    names = {
        "ScheduledActionName": "scheduledActionName",
        "AutoScalingGroupName": "autoscalingGroupName",
        "StartTime": "startTime",
        "MinSize": "minSize",
        "MaxSize": "maxSize",
        "DesiredCapacity": "desiredCapacity",
    }
    yield Call("autoscaling", "PutScheduledUpdateGroupAction", inputs.some(**names))

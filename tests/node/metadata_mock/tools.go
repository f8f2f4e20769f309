//go:build tools

// Package tools pins Amazon's mock of the EC2 metadata service (Apache-2.0), which tests/node/test_metadata_mock.py builds.
package tools

import _ "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock"

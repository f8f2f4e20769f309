//go:build tools

// Package prometheus pins the version of Prometheus that the tests build.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"

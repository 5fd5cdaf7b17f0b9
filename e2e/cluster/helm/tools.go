//go:build tools

// Names the program, so that "go mod tidy" keeps what it needs in go.mod and go.sum.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)

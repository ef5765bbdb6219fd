//go:build e2e

package schedulers

import (
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

const (
	namespace = testbed.Namespace
	nodeCPUs  = 4 // of every node
)

// shared is the control plane of all tests, with our definitions.
var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

package e2e

import (
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// shared is the control plane of all tests that do not break it.
var shared controlplane.Shared

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

package firstscheduler

import (
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// shared is the control plane of all tests.
var shared = controlplane.Shared{}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

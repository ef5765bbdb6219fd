//go:build soak

package flood

import (
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

var shared = controlplane.Shared{Prepare: crd.Prepare}

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared)) }

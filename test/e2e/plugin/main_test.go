package plugin

import (
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

// shared is the control plane of all tests but those of groups, with our definitions, and withGroups theirs.
var (
	shared     = controlplane.Shared{Prepare: crd.Prepare}
	withGroups = controlplane.Shared{
		Options: controlplane.Options{
			FeatureGates:  map[string]bool{"GenericWorkload": true},
			APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"},
		},
		Prepare: crd.Prepare,
	}
)

func TestMain(m *testing.M) { os.Exit(controlplane.Run(m, &shared, &withGroups)) }

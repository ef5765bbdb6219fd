package crd

import (
	"context"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// InstallFence applies manifests/base/fence.yaml.
func InstallFence(ctx context.Context, cp *controlplane.ControlPlane) error {
	content, err := controlplane.ReadFile("manifests", "base", "fence.yaml")
	if err != nil {
		return err
	}
	return cp.Apply(ctx, content, "")
}

package controlplane

import (
	"fmt"
	"os"
)

// Tenant returns a control plane on the etcd, the API server, the controller manager and the kwok of this one, with
// processes, files and logs of its own. Its Stop ends and removes what was started through it and nothing else. It does
// not know the parts it stands on, so nobody can stop these through it.
func (c *ControlPlane) Tenant() (*ControlPlane, error) {
	if err := c.usable(); err != nil {
		return nil, fmt.Errorf("make a tenant: %w", err)
	}
	dir, err := os.MkdirTemp("", "globalreserve-tenant-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a tenant: %w", err)
	}
	t := &ControlPlane{
		options: c.options, bin: c.bin, dir: dir, ports: &ports{},
		apiPort: c.apiPort, etcdURL: c.etcdURL, identities: c.identities, client: c.client, dynamic: c.dynamic,
		mapper: c.mapper,
	}
	for _, own := range []string{t.LogDir(), t.path("config")} {
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, fmt.Errorf("lay out a tenant's directory: %w", err)
		}
	}
	if err := os.Symlink(c.path("pki"), t.path("pki")); err != nil {
		return nil, fmt.Errorf("lay out a tenant's directory: %w", err)
	}
	return t, nil
}

package controlplane

import (
	"context"
	_ "embed" // kwok.yaml
	"path/filepath"
	"strconv"
)

//go:embed kwok.yaml
var kwokConfig []byte

func (c *ControlPlane) startKwok(ctx context.Context) error {
	config := c.path("config", "kwok.yaml")
	if err := writePrivate(config, kwokConfig); err != nil {
		return err
	}
	// kwok's stages write any node and pod; there is no bootstrap role for that.
	kubeconfig, err := c.Kubeconfig("kwok", AdminGroup)
	if err != nil {
		return err
	}
	port, err := c.ports.take()
	if err != nil {
		return err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	_, err = c.StartProcess(ctx, ProcessOptions{
		Name: Kwok, Path: filepath.Join(c.bin, Kwok),
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--config=" + config, "--server-address=" + address,
			"--node-lease-duration-seconds=" + strconv.Itoa(leaseSeconds),
		},
		// kwok looks for further configuration in its work directory.
		Env:   []string{"KWOK_WORKDIR=" + c.path("config", "kwok")},
		Ready: HTTPReady("http://"+address+"/healthz", nil),
	})
	return err
}

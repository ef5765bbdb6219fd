package clusterload

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

// ServerName is the name of the first GlobalReserve server among the parts of a control plane.
const ServerName = "globalreserve"

// leaseName is the Lease that all servers of a cluster share.
const leaseName = "globalreserve"

// The service account of manifests/base.
const (
	serverNamespace = "globalreserve-system"
	serverAccount   = "globalreserve"
	serverUser      = "system:serviceaccount:" + serverNamespace + ":" + serverAccount
)

var serverGangs = []string{"system:serviceaccounts", "system:serviceaccounts:" + serverNamespace}

// ServerOptions says how to run the globalreserve binary. The zero value is one server with the flags' defaults, as the
// service account of manifests/base, with exactly the rights given there.
type ServerOptions struct {
	// Name is the name of the part. Default: ServerName.
	Name string
	// Binary is the file to run. Default: bin/globalreserve of the repository.
	Binary string
	// Proxy stands between the server and the API server.
	Proxy *controlplane.FaultProxy
	// Args are added to the command line, and Env to the environment, as KEY=value.
	Args, Env []string
	// StandBy has StartServer return as soon as the server serves: it may have to wait for another one that decides.
	StandBy bool
	// ReadyTimeout is how long StartServer waits for the server. Default: Patience.
	ReadyTimeout time.Duration
}

// QuickLease are the times of a Lease for clusters that would rather not be without a leader for long. A machine that
// stands still for three seconds ends it, so tests have it only where they wait for the end of Leases again and again.
var QuickLease = []string{
	"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s",
	"--bind-timeout=8s",
}

// FreeLease takes the Lease from a server that was killed, so that the next one need not wait for its end. The
// server must be gone, and no other one may have the Lease.
func FreeLease(ctx context.Context, cp *controlplane.ControlPlane) error {
	leases := cp.Client().CoordinationV1().Leases(metav1.NamespaceSystem)
	_, err := leases.Patch(ctx, leaseName, types.MergePatchType, []byte(`{"spec":{"holderIdentity":null}}`),
		metav1.PatchOptions{})
	return err
}

// Server is a running GlobalReserve server. It ends with its control plane.
type Server struct {
	*controlplane.Process
	// URL is where it serves, without a slash at the end. It stays the same over restarts.
	URL string
}

// StartServer starts a GlobalReserve server and returns when it is ready to decide.
func StartServer(ctx context.Context, cp *controlplane.ControlPlane, options ServerOptions) (*Server, error) {
	if options.Binary == "" {
		var err error
		if options.Binary, err = program("globalreserve", "build"); err != nil {
			return nil, err
		}
	}
	kubeconfig, err := ServerKubeconfig(ctx, cp)
	if err == nil && options.Proxy != nil {
		kubeconfig, err = options.Proxy.Kubeconfig(serverUser, serverGangs...)
	}
	if err != nil {
		return nil, err
	}
	free, err := cp.FreePort()
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(free)
	url := "http://127.0.0.1:" + port
	ready := "/readyz"
	if options.StandBy {
		ready = "/livez"
	}
	process, err := cp.StartProcess(ctx, controlplane.ProcessOptions{
		Name: cmp.Or(options.Name, ServerName), Path: options.Binary,
		Args: append([]string{"--kubeconfig=" + kubeconfig, "--port=" + port, "--peer-address=127.0.0.1:0"},
			options.Args...),
		Env:   options.Env,
		Ready: controlplane.HTTPReady(url+ready, nil), ReadyTimeout: options.ReadyTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &Server{Process: process, URL: url}, nil
}

// program returns the path of a program in bin/, which a target of make builds.
func program(name, target string) (string, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("there is no %s: %w; build it with 'make %s'", name, err, target)
	}
	return path, nil
}

// ServerKubeconfig grants the service account of manifests/base the rights that are written there,
// and returns the path of a kubeconfig that authenticates as it.
func ServerKubeconfig(ctx context.Context, cp *controlplane.ControlPlane) (string, error) {
	if err := grant(ctx, cp, "base", "rbac.yaml"); err != nil {
		return "", err
	}
	return cp.Kubeconfig(serverUser, serverGangs...)
}

// grant creates the namespace of the server and the objects of an RBAC manifest, those that are not there yet.
func grant(ctx context.Context, cp *controlplane.ControlPlane, manifest ...string) error {
	err := cp.CreateNamespace(ctx, serverNamespace)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	content, err := controlplane.ReadFile(append([]string{"manifests"}, manifest...)...)
	if err != nil {
		return fmt.Errorf("read the server's rights: %w", err)
	}
	objects, err := controlplane.Documents(content)
	if err != nil {
		return fmt.Errorf("grant what %v says: %w", manifest, err)
	}
	for _, object := range objects {
		if err := cp.CreateObject(ctx, object, serverNamespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("grant what %v says: %w", manifest, err)
		}
	}
	return nil
}

// GrantRoles makes the roles of manifests/base that callers are given, and gives kube-scheduler's user its own.
func GrantRoles(ctx context.Context, cp *controlplane.ControlPlane) error {
	return grant(ctx, cp, "base", "callers.yaml")
}

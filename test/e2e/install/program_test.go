//go:build e2e

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// accountPath is where a pod finds its token, and the authority of the API server.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// staticUser is the user in the kubeconfig of a static pod.
const staticUser = "globalreserve-server"

// program is a container's process on this machine.
type program struct {
	*controlplane.Process
	user string
	args []string
	// ports are those on loopback that stand for the container's, by these.
	ports map[string]int
}

// url is where a port of the container is reached; "" where it has none.
func (p *program) url(scheme, port string) string {
	if p.ports[port] == 0 {
		return ""
	}
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, p.ports[port])
}

// has tells whether it runs with a flag.
func (p *program) has(flag string) bool {
	return slices.ContainsFunc(p.args, func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
}

// run starts the program of a pod with its flags, files and environment and as its user. Only addresses and paths are
// other ones. server is where a scheduler beside it asks.
func (c *cluster) run(t *testing.T, objects []*unstructured.Unstructured, pod *corev1.Pod, server string) *program {
	t.Helper()
	container := pod.Spec.Containers[0]
	p := &program{user: staticUser, ports: map[string]int{}}
	var groups []string
	if account := pod.Spec.ServiceAccountName; account != "" {
		p.user = "system:serviceaccount:" + pod.Namespace + ":" + account
		groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + pod.Namespace}
	}
	kubeconfig, err := c.Kubeconfig(p.user, groups...)
	require.NoError(t, err)
	c.awaitRights(t, objects, p.user)

	paths := c.mount(t, objects, pod, kubeconfig)
	change := func(text string) string { return paths.Replace(text) }
	for _, arg := range container.Args {
		p.args = append(p.args, c.address(t, p, change(arg)))
	}
	name := strings.Split(filepath.Base(container.Image), ":")[0]
	if name == "globalreserve" {
		if !p.has("--kubeconfig") { // in a pod it is the ServiceAccount
			p.args = append(p.args, "--kubeconfig="+kubeconfig)
		}
		if p.has("--secure-port") && !p.has("--secure-bind-address") {
			p.args = append(p.args, "--secure-bind-address=127.0.0.1")
		}
	} else {
		port := c.port(t, p, "10259")
		p.args = append(p.args, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
			"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port))
		c.rewriteScheduler(t, p, kubeconfig)
	}
	p.Process, err = c.StartProcess(t.Context(), controlplane.ProcessOptions{
		Name: pod.Name, Path: testbed.File(t, "bin", name), Args: p.args, Env: environment(t, pod),
		Ready: controlplane.HTTPReady(p.url("http", "23459")+"/readyz", nil),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, p.Kill(), "what it does with a SIGTERM takes its --shutdown-delay, and is shown elsewhere")
		if t.Failed() {
			t.Logf("%s %v:\n%s", name, p.args, testbed.Tail(p.LogFile(), 30))
		}
	})
	return p
}

// port is a free one that stands for a port of the container.
func (c *cluster) port(t *testing.T, p *program, of string) int {
	t.Helper()
	port, err := c.FreePort()
	require.NoError(t, err)
	p.ports[of] = port
	return port
}

// address has a flag with an address or a port name a free port on loopback.
func (c *cluster) address(t *testing.T, p *program, arg string) string {
	t.Helper()
	name, value, _ := strings.Cut(arg, "=")
	switch name {
	case "--port", "--secure-port":
		return fmt.Sprintf("%s=%d", name, c.port(t, p, value))
	case "--health-address", "--peer-address", "--ui-address":
		return fmt.Sprintf("%s=127.0.0.1:%d", name, c.port(t, p, value[strings.LastIndex(value, ":")+1:]))
	}
	return arg
}

// environment is what a kubelet makes of the fields.
func environment(t *testing.T, pod *corev1.Pod) (env []string) {
	t.Helper()
	for _, e := range pod.Spec.Containers[0].Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{
				"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "status.podIP": "127.0.0.1",
			}[e.ValueFrom.FieldRef.FieldPath]
		}
		require.NotEmpty(t, value, e.Name)
		env = append(env, e.Name+"="+value)
	}
	return env
}

// mount makes the files of a pod's volumes, and returns what has their paths in the place of the container's.
func (c *cluster) mount(t *testing.T, objects []*unstructured.Unstructured, pod *corev1.Pod,
	kubeconfig string,
) *strings.Replacer {
	t.Helper()
	places := map[string]string{accountPath: c.accountFiles(t, pod)}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		require.GreaterOrEqual(t, i, 0, "there is no volume %s", m.Name)
		volume, folder := pod.Spec.Volumes[i], t.TempDir()
		switch {
		case volume.ConfigMap != nil:
			data, _, err := unstructured.NestedStringMap(find(t, objects, "ConfigMap", volume.ConfigMap.Name).Object, "data")
			require.NoError(t, err)
			for name, content := range data {
				write(t, filepath.Join(folder, name), content)
			}
		case volume.Secret != nil:
			require.Equal(t, "globalreserve-tls", volume.Secret.SecretName)
			c.certificate(t, folder)
		case volume.HostPath != nil:
			folder = c.hostFiles(t, objects, volume.HostPath.Path, folder, kubeconfig)
		default:
			require.NotNil(t, volume.EmptyDir, m.Name)
		}
		places[m.MountPath] = folder
	}
	var pairs []string
	for path := range places {
		pairs = append(pairs, path)
	}
	// /etc/globalreserve-tls before /etc/globalreserve
	slices.SortFunc(pairs, func(a, b string) int { return len(b) - len(a) })
	var changes []string
	for _, path := range pairs {
		changes = append(changes, path, places[path])
	}
	replacer := strings.NewReplacer(changes...)
	for path, folder := range places {
		if file := filepath.Join(folder, "config.yaml"); path != accountPath && exists(file) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			write(t, file, replacer.Replace(string(content)))
		}
	}
	return replacer
}

func exists(file string) bool { _, err := os.Stat(file); return err == nil }

func write(t *testing.T, file, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

// accountFiles are what a kubelet mounts of a ServiceAccount.
func (c *cluster) accountFiles(t *testing.T, pod *corev1.Pod) (folder string) {
	t.Helper()
	folder = t.TempDir()
	ca, err := os.ReadFile(c.CAFile())
	require.NoError(t, err)
	write(t, filepath.Join(folder, "ca.crt"), string(ca))
	if account := pod.Spec.ServiceAccountName; account != "" {
		token, err := c.Client().CoreV1().ServiceAccounts(pod.Namespace).
			CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		write(t, filepath.Join(folder, "token"), token.Status.Token)
	}
	return folder
}

// certificate puts one for loopback, and its authority, into a folder.
func (c *cluster) certificate(t *testing.T, folder string) {
	t.Helper()
	cert, key, err := c.ServingCertificate("install")
	require.NoError(t, err)
	for name, from := range map[string]string{"tls.crt": cert, "tls.key": key, "ca.crt": c.CAFile()} {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		write(t, filepath.Join(folder, name), string(content))
	}
}

// hostFiles are what has to be on a node for a static pod.
func (c *cluster) hostFiles(t *testing.T, objects []*unstructured.Unstructured, path, folder,
	kubeconfig string,
) string {
	t.Helper()
	switch path {
	case "/etc/kubernetes/globalreserve.conf":
		return kubeconfig
	case "/etc/globalreserve":
		for _, name := range []string{"policy.yaml", "tracing.yaml"} {
			if content := staticFile(t, objects, name); content != "" {
				write(t, filepath.Join(folder, name), content)
			}
		}
	case "/etc/kubernetes/globalreserve-tls":
		c.certificate(t, folder)
	case "/etc/kubernetes/pki/ca.crt":
		return c.CAFile()
	default:
		require.Fail(t, "nobody is told to put this on a node: "+path)
	}
	return folder
}

// rewriteScheduler changes addresses in the configuration of a globalreserve-scheduler, as flags are changed.
func (c *cluster) rewriteScheduler(t *testing.T, p *program, kubeconfig string) {
	t.Helper()
	i := slices.IndexFunc(p.args, func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
	require.GreaterOrEqual(t, i, 0)
	file := strings.TrimPrefix(p.args[i], "--config=")
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	config := map[string]any{}
	require.NoError(t, yaml.Unmarshal(content, &config))
	config["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	profile := config["profiles"].([]any)[0].(map[string]any)
	args := profile["pluginConfig"].([]any)[0].(map[string]any)["args"].(map[string]any)
	own := args["server"].(map[string]any)
	own["securePort"] = c.port(t, p, fmt.Sprint(own["securePort"]))
	own["secureBindAddress"] = "127.0.0.1"
	for _, key := range []string{"healthAddress", "peerAddress", "uiAddress"} {
		if address, there := own[key].(string); there {
			_, port, _ := strings.Cut(address, ":")
			own[key] = fmt.Sprintf("127.0.0.1:%d", c.port(t, p, port))
		}
	}
	content, err = yaml.Marshal(config)
	require.NoError(t, err)
	write(t, file, string(content))
}

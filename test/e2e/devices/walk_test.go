//go:build e2e

package devices

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestWalkThrough goes through examples/extended-resources on the two nodes it speaks of, with both of the
// setups it shows: pods without a schedulerName go to a kube-scheduler with managed-resources.yaml.
func TestWalkThrough(t *testing.T) {
	c := newCluster(t, setup{
		own: &controlplane.Options{Workloads: true}, nodes: 2,
		args: []string{"--ignored-resources=globalreserve.io/devices"},
	})
	c.AwaitUntainted("")
	c.StartKubeScheduler(corev1.DefaultSchedulerName, "managed-resources.yaml")
	c.startExampleScheduler()
	c.example("devices.yaml")
	t.Run("a killed server", func(t *testing.T) { walkKilled(c.in(t)) })
	t.Run("managedResources", func(t *testing.T) { walkManaged(c.in(t)) })
	c.deleteExamples()
	t.Run("README", func(t *testing.T) { walkReadme(c.in(t)) }) // last: it ends with the scheduler's rights
	// kube-controller-manager deletes what pods owned; it knows the kind half a minute after its start
	c.awaitOwned(0)
}

// examples is where the files of the walk-through are.
var examples = []string{"examples", "extended-resources"}

// example creates the objects of one of them.
func (c *cluster) example(file string) {
	c.T.Helper()
	c.ApplyFile(append(examples, file)...)
}

// deleteExamples leaves nothing of devices behind that the README would show.
func (c *cluster) deleteExamples() {
	c.T.Helper()
	ctx, all, of := c.T.Context(), metav1.ListOptions{}, metav1.DeleteOptions{}
	require.NoError(c.T, c.DeviceClaims().DeleteCollection(ctx, of, all))
	c.Eventually(func(t *assert.CollectT) {
		list, err := c.DeviceClaims().List(ctx, all)
		require.NoError(t, err)
		assert.Empty(t, list.Items)
	})
	require.NoError(c.T, c.Devices().DeleteCollection(ctx, of, all))
	require.NoError(c.T, c.Client().CoreV1().Events(namespace).DeleteCollection(ctx, of, all))
}

// startExampleScheduler starts the kube-scheduler of scheduler.yaml with the configuration given there,
// under the service account of scheduler-rbac.yaml and a lease of its own.
func (c *cluster) startExampleScheduler() {
	c.T.Helper()
	c.example("scheduler-rbac.yaml")
	c.example("scheduler.yaml") // nothing runs its pod; the API server finds it good
	config := ""
	content, err := controlplane.ReadFile(append(examples, "scheduler.yaml")...)
	require.NoError(c.T, err)
	objects, err := controlplane.Documents(content)
	require.NoError(c.T, err)
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" {
			config, _, _ = unstructured.NestedString(object.Object, "data", "config.yaml")
		}
	}
	changed := map[string]any{}
	require.NoError(c.T, yaml.Unmarshal([]byte(config), &changed))
	extender, _ := changed["extenders"].([]any)[0].(map[string]any)
	require.Equal(c.T, "https://globalreserve.globalreserve-system.svc:23456", extender["urlPrefix"])
	// The server here is reached over loopback; test/e2e/callers has a kube-scheduler that asks over TLS.
	extender["urlPrefix"], extender["enableHTTPS"] = c.Documented(), false
	delete(extender, "tlsConfig")
	text, err := yaml.Marshal(changed)
	require.NoError(c.T, err)
	require.NoError(c.T, c.RunScheduler(c.T.Context(), controlplane.SchedulerOptions{
		Name: scheduler, Config: text,
		Kubeconfig: c.accountKubeconfig("kube-system", scheduler), LeaderElection: true,
	}))
	c.Eventually(func(t *assert.CollectT) {
		lease, err := c.Client().CoordinationV1().Leases("kube-system").Get(c.T.Context(), scheduler, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.NotEmpty(t, lease.Spec.HolderIdentity)
		}
	})
}

// accountKubeconfig writes a kubeconfig with a token of a service account.
func (c *cluster) accountKubeconfig(inNamespace, account string) (file string) {
	c.T.Helper()
	token, err := c.Client().CoreV1().ServiceAccounts(inNamespace).CreateToken(c.T.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.T, err)
	config := clientcmdapi.NewConfig()
	config.Clusters[account] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthority: c.CAFile()}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[account] = &clientcmdapi.Context{Cluster: account, AuthInfo: account}
	config.CurrentContext = account
	file = filepath.Join(c.T.TempDir(), "kubeconfig")
	require.NoError(c.T, clientcmd.WriteToFile(*config, file))
	return file
}

// walkManaged has the default scheduler ask GlobalReserve for the pods with the mark and for no others.
func walkManaged(c *cluster) {
	c.example("claims.yaml")
	c.requireAvailable("node-1-l4-0")
	asked := func() (sum int) {
		for _, verb := range []string{"filter", "prioritize", "preempt", "bind"} {
			sum += c.Metric("globalreserve_requests_total", "code", "200", "verb", verb)
		}
		return sum
	}
	before := asked()
	c.CreatePod("unmarked", corev1.DefaultSchedulerName, "100m")
	c.AwaitBound("unmarked")
	require.Equal(c.T, before, asked(), "the extender was called for a pod without the mark")

	c.example("marked-pod.yaml")
	marked, _ := c.AwaitBound("marked")
	require.Equal(c.T, "node-1", marked.Spec.NodeName)
	require.Equal(c.T, "GPU-80b20001", given(marked))
	require.Greater(c.T, asked(), before, "or the metric has another name by now")
	c.awaitClaim("l4-erc", v1alpha1.ExtendedResourceClaimBound)
	c.Delete("unmarked", "marked")
}

// exampleDevices are the devices of devices.yaml.
var exampleDevices = []string{"node-0-h100-0", "node-0-h100-1", "node-1-l4-0"}

// walkKilled has each pod of a Deployment get a claim of its own where the server is killed meanwhile, and a server
// that starts know which container of a pod has what.
func walkKilled(c *cluster) {
	c.example("template.yaml")
	c.Server.Crash(c.T) // when pods are there, and claims perhaps
	owners := c.awaitOwned(3)
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, testbed.Bound(c.Pods()), 3) })
	ids := map[string]bool{}
	for _, pod := range testbed.Bound(c.Pods()) {
		ids[given(&pod)] = true
		require.Contains(c.T, owners, pod.UID)
	}
	require.Equal(c.T, map[string]bool{"GPU-80b20001": true, "GPU-7a1c0001": true, "GPU-7a1c0002": true}, ids)
	for _, device := range exampleDevices {
		c.awaitDevice(device, v1alpha1.ExtendedResourceBound)
	}
	require.NoError(c.T, c.Objects.GlobalreserveV1alpha1().ExtendedResourceClaimTemplates(namespace).
		Delete(c.T.Context(), "one-gpu", metav1.DeleteOptions{}))
	require.NoError(c.T, c.Client().AppsV1().Deployments(namespace).
		Delete(c.T.Context(), "workers", metav1.DeleteOptions{}))
	c.requireAvailable(exampleDevices...)

	c.example("containers-pod.yaml")
	pod, _ := c.AwaitBound("containers")
	require.Equal(c.T, "train=GPU-7a1c0001,GPU-7a1c0002;watch=GPU-7a1c0002", given(pod))
	c.awaitClaim("second-h100", v1alpha1.ExtendedResourceClaimBound)
	c.Server.Crash(c.T)
	c.Eventually(func(t *assert.CollectT) {
		answer, err := c.Ledger.Nodes(c.T.Context())
		require.NoError(t, err)
		devices := answer.Nodes[0].Devices
		require.Len(t, devices, 2)
		assert.False(t, devices[0].Free || devices[1].Free, "%+v", devices)
	})
	c.Delete("containers")
}

// awaitOwned waits until pods own so many claims, and returns their UIDs.
func (c *cluster) awaitOwned(count int) (owners []types.UID) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		list, err := c.DeviceClaims().List(c.T.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		owners = nil
		for i := range list.Items {
			if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil {
				owners = append(owners, owner.UID)
			}
		}
		assert.Len(t, owners, count)
	})
	return owners
}

//go:build e2e

package devices

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

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
	t.Run("one claim after another", func(t *testing.T) { walkClaims(c.in(t)) })
	t.Run("a Job", func(t *testing.T) { walkJob(c.in(t)) })
	t.Run("managedResources", func(t *testing.T) { walkManaged(c.in(t)) })
	c.deleteClaims()
	require.NoError(t, c.Devices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, c.Client().CoreV1().Events(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	t.Run("README", func(t *testing.T) { walkReadme(c.in(t)) })
	c.requireConsistent()
	c.verdict.requireGood(t)
}

// examples is where the files of the walk-through are.
var examples = []string{"examples", "extended-resources"}

// example creates the objects of one of them.
func (c *cluster) example(file string) {
	c.T.Helper()
	c.ApplyFile(append(examples, file)...)
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
	extender["urlPrefix"], extender["enableHTTPS"] = c.Server.URL, false
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

// scale scales the Deployment of the example and returns its pod, nil for none, when there is so much of it.
func (c *cluster) scale(replicas int) *corev1.Pod {
	c.T.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.Client().AppsV1().Deployments(namespace).Patch(c.T.Context(), "trainer", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c.T, err)
	return c.awaitTrainer(replicas)
}

func (c *cluster) awaitTrainer(replicas int) (pod *corev1.Pod) {
	c.T.Helper()
	c.Eventually(func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Pods(namespace).List(c.T.Context(), metav1.ListOptions{LabelSelector: "app=trainer"})
		require.NoError(t, err)
		assert.Len(t, list.Items, replicas)
		for i := range list.Items {
			pod = &list.Items[i]
			assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
		}
	})
	return pod
}

func walkClaims(c *cluster) {
	c.example("devices.yaml")
	c.example("claims.yaml")
	c.example("deployment.yaml")
	trainer := c.awaitTrainer(1)
	require.Equal(c.T, "node-1", trainer.Spec.NodeName, "the node with the K80")
	require.Equal(c.T, "GPU-80b20001", given(trainer))
	claim := c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimBound)
	require.Equal(c.T, trainer.UID, claim.Status.PodRef.UID)
	require.Equal(c.T, "k80-erc", c.awaitDevice("node-1-k80-0", v1alpha1.ExtendedResourceBound).Status.ClaimRef.Name)
	c.requireAvailable("node-0-t4-0", "node-0-t4-1")

	c.scale(0)
	c.awaitDevice("node-1-k80-0", v1alpha1.ExtendedResourceAvailable)
	c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimPending)
	c.scale(1)

	c.example("waiting-pod.yaml")
	require.Contains(c.T, c.AwaitRefused("next"), "GlobalReserve: another pod has a device claim of the pod")
	c.AwaitEvent("Pod", "next", "DeviceClaimInUse", "ExtendedResourceClaim k80-erc is in use by pod trainer-")
	c.AwaitBackOffOver()
	c.scale(0)
	gone := time.Now()
	next, at := c.AwaitBound("next")
	c.T.Logf("the next pod was bound %s after the first was gone", at.Sub(gone).Round(time.Millisecond))
	require.Less(c.T, at.Sub(gone), testbed.WakeWithin)
	require.Equal(c.T, "GPU-80b20001", given(next))

	c.example("large-pod.yaml")
	large, _ := c.AwaitBound("large")
	require.Equal(c.T, "GPU-7a1c0001,GPU-7a1c0002", given(large))
	c.example("bad-pod.yaml")
	c.AwaitRefused("bad")
	c.AwaitEvent("Pod", "bad", "DeviceClaimUnusable", "there is no ExtendedResourceClaim k90-erc in namespace default")
	c.requireConsistent()
	c.Delete("next", "large", "bad")
	require.NoError(c.T, c.Client().AppsV1().Deployments(namespace).Delete(c.T.Context(), "trainer", metav1.DeleteOptions{}))
}

// walkJob has the pod of a Job finish, which gives its device back although the pod is still there.
func walkJob(c *cluster) {
	c.Apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    metadata:
      annotations: {globalreserve.io/extended-resource-claims: k80-erc}
    spec:
      schedulerName: extended-resource-scheduler
      restartPolicy: Never
      containers: [{name: main, image: none}]
`)
	c.awaitDevice("node-1-k80-0", v1alpha1.ExtendedResourceBound)
	c.awaitDevice("node-1-k80-0", v1alpha1.ExtendedResourceAvailable)
	c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimPending)
	list, err := c.Client().CoreV1().Pods(namespace).List(c.T.Context(), metav1.ListOptions{LabelSelector: "job-name=once"})
	require.NoError(c.T, err)
	require.Len(c.T, list.Items, 1)
	require.Equal(c.T, corev1.PodSucceeded, list.Items[0].Status.Phase)
	require.Equal(c.T, "GPU-80b20001", given(&list.Items[0]))
	background := metav1.DeletePropagationBackground
	require.NoError(c.T, c.Client().BatchV1().Jobs(namespace).Delete(c.T.Context(), "once", metav1.DeleteOptions{PropagationPolicy: &background}))
	c.Eventually(func(t *assert.CollectT) { assert.Nil(t, c.FindPod(list.Items[0].Name)) })
}

// walkManaged has the default scheduler ask GlobalReserve for the pods with the mark and for no others.
func walkManaged(c *cluster) {
	asked := func() (sum int) {
		for _, verb := range []string{"filter", "prioritize", "preempt", "bind"} {
			sum += c.Metric("globalreserve_requests_total", "code", "200", "verb", verb)
		}
		return sum
	}
	before := asked()
	require.Positive(c.T, before, "the metric has another name by now")
	c.create("unmarked", corev1.DefaultSchedulerName, "")
	c.AwaitBound("unmarked")
	require.Equal(c.T, before, asked(), "the extender was called for a pod without the mark")

	c.example("marked-pod.yaml")
	marked, _ := c.AwaitBound("marked")
	require.Equal(c.T, "node-1", marked.Spec.NodeName)
	require.Equal(c.T, "GPU-80b20001", given(marked))
	require.Greater(c.T, asked(), before)
	c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimBound)
	c.Delete("unmarked", "marked")
}

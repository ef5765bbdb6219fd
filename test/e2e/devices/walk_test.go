package devices

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// TestWalkThrough goes through examples/extended-resources on the two nodes it speaks of, with both of the
// setups it shows: pods without a schedulerName go to a kube-scheduler with managed-resources.yaml.
func TestWalkThrough(t *testing.T) {
	c := newCluster(t, setup{
		own: &controlplane.Options{ControllerManager: true, Kwok: true}, nodes: 2,
		args: []string{"--ignored-resources=globalreserve.io/devices"},
	})
	c.awaitUntainted()
	config, err := clusterload.SchedulerConfig("managed-resources.yaml", c.server.URL)
	require.NoError(t, err)
	require.NoError(t, c.StartScheduler(t.Context(), corev1.DefaultSchedulerName, config))
	c.startExampleScheduler()
	t.Run("one claim after another", func(t *testing.T) { walkClaims(c.in(t)) })
	t.Run("a Job", func(t *testing.T) { walkJob(c.in(t)) })
	t.Run("managedResources", func(t *testing.T) { walkManaged(c.in(t)) })
	c.deleteClaims()
	require.NoError(t, c.devices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, c.Client().CoreV1().Events(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	t.Run("README", func(t *testing.T) { walkReadme(c.in(t)) })
	c.requireConsistent()
	c.verdict.requireGood(t)
}

// awaitUntainted waits until pods may be scheduled to the nodes.
func (c *cluster) awaitUntainted() {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			assert.Empty(t, list.Items[i].Spec.Taints)
		}
	})
}

// startExampleScheduler starts the kube-scheduler of scheduler.yaml with the configuration given there,
// under the service account of scheduler-rbac.yaml and a lease of its own.
func (c *cluster) startExampleScheduler() {
	c.t.Helper()
	c.apply(c.example("scheduler-rbac.yaml"))
	c.apply(c.example("scheduler.yaml")) // nothing runs its pod; the API server finds it good
	config := ""
	for _, object := range c.documents([]byte(c.example("scheduler.yaml"))) {
		if object.GetKind() == "ConfigMap" {
			config, _, _ = unstructured.NestedString(object.Object, "data", "config.yaml")
		}
	}
	const url = "http://globalreserve.globalreserve-system.svc:23456"
	require.Contains(c.t, config, url)
	require.NoError(c.t, c.RunScheduler(c.t.Context(), controlplane.SchedulerOptions{
		Name: scheduler, Config: []byte(strings.ReplaceAll(config, url, c.server.URL)),
		Kubeconfig: c.accountKubeconfig("kube-system", scheduler), LeaderElection: true,
	}))
	c.eventually(func(t *assert.CollectT) {
		lease, err := c.Client().CoordinationV1().Leases("kube-system").Get(c.t.Context(), scheduler, metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.NotEmpty(t, lease.Spec.HolderIdentity)
		}
	})
}

// accountKubeconfig writes a kubeconfig with a token of a service account.
func (c *cluster) accountKubeconfig(inNamespace, account string) (file string) {
	c.t.Helper()
	token, err := c.Client().CoreV1().ServiceAccounts(inNamespace).CreateToken(c.t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	config := clientcmdapi.NewConfig()
	config.Clusters[account] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthority: c.CAFile()}
	config.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[account] = &clientcmdapi.Context{Cluster: account, AuthInfo: account}
	config.CurrentContext = account
	file = filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(*config, file))
	return file
}

// scale scales the Deployment of the example and returns its pod, nil for none, when there is so much of it.
func (c *cluster) scale(replicas int) *corev1.Pod {
	c.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"replicas": replicas}})
	require.NoError(c.t, err)
	_, err = c.Client().AppsV1().Deployments(namespace).Patch(c.t.Context(), "trainer", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(c.t, err)
	return c.awaitTrainer(replicas)
}

func (c *cluster) awaitTrainer(replicas int) (pod *corev1.Pod) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{LabelSelector: "app=trainer"})
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
	c.apply(c.example("devices.yaml"))
	c.apply(c.example("claims.yaml"))
	c.apply(c.example("deployment.yaml"))
	trainer := c.awaitTrainer(1)
	require.Equal(c.t, "node-1", trainer.Spec.NodeName, "the node with the K80")
	require.Equal(c.t, "GPU-80b20001", given(trainer))
	claim := c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimBound)
	require.Equal(c.t, trainer.UID, claim.Status.PodRef.UID)
	require.Equal(c.t, "k80-erc", c.awaitDevice("node-1-k80-0", v1alpha1.ExtendedResourceBound).Status.ClaimRef.Name)
	c.requireAvailable("node-0-t4-0", "node-0-t4-1")

	c.scale(0)
	c.awaitDevice("node-1-k80-0", v1alpha1.ExtendedResourceAvailable)
	c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimPending)
	c.scale(1)

	c.apply(c.example("waiting-pod.yaml"))
	require.Contains(c.t, c.awaitRefused("next"), "GlobalReserve: another pod has a device claim of the pod")
	c.awaitEvent("Pod", "next", "DeviceClaimInUse", "ExtendedResourceClaim k80-erc is in use by pod trainer-")
	c.awaitBackOffOver("next")
	c.scale(0)
	gone := time.Now()
	next, at := c.awaitBound("next")
	c.t.Logf("the next pod was bound %s after the first was gone", at.Sub(gone).Round(time.Millisecond))
	require.Less(c.t, at.Sub(gone), wakeWithin)
	require.Equal(c.t, "GPU-80b20001", given(next))

	c.apply(c.example("large-pod.yaml"))
	large, _ := c.awaitBound("large")
	require.Equal(c.t, "GPU-7a1c0001,GPU-7a1c0002", given(large))
	c.apply(c.example("bad-pod.yaml"))
	c.awaitRefused("bad")
	c.awaitEvent("Pod", "bad", "DeviceClaimUnusable", "there is no ExtendedResourceClaim k90-erc in namespace default")
	c.requireConsistent()
	for _, pod := range []string{"next", "large", "bad"} {
		c.deletePod(pod)
		c.awaitGone(pod)
	}
	require.NoError(c.t, c.Client().AppsV1().Deployments(namespace).Delete(c.t.Context(), "trainer", metav1.DeleteOptions{}))
}

// awaitBackOffOver waits until a pod has been refused for so long that its scheduler would look at it again
// at once: kube-scheduler backs off for a second after the first attempt.
func (c *cluster) awaitBackOffOver(name string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		for _, condition := range c.pod(name).Status.Conditions {
			if condition.Type == corev1.PodScheduled {
				assert.Greater(t, time.Since(condition.LastTransitionTime.Time), 3*time.Second)
			}
		}
	})
}

func (c *cluster) awaitGone(name string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		_, err := c.Client().CoreV1().Pods(namespace).Get(c.t.Context(), name, metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	})
}

// walkJob has the pod of a Job finish, which gives its device back although the pod is still there.
func walkJob(c *cluster) {
	c.apply(`
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
	list, err := c.Client().CoreV1().Pods(namespace).List(c.t.Context(), metav1.ListOptions{LabelSelector: "job-name=once"})
	require.NoError(c.t, err)
	require.Len(c.t, list.Items, 1)
	require.Equal(c.t, corev1.PodSucceeded, list.Items[0].Status.Phase)
	require.Equal(c.t, "GPU-80b20001", given(&list.Items[0]))
	background := metav1.DeletePropagationBackground
	require.NoError(c.t, c.Client().BatchV1().Jobs(namespace).Delete(c.t.Context(), "once", metav1.DeleteOptions{PropagationPolicy: &background}))
	c.awaitGone(list.Items[0].Name)
}

// walkManaged has the default scheduler ask GlobalReserve for the pods with the mark and for no others.
func walkManaged(c *cluster) {
	asked := func() (sum float64) {
		for _, verb := range []string{"filter", "prioritize", "preempt", "bind"} {
			sum += c.metric("globalreserve_requests_total", "code", "200", "verb", verb)
		}
		return sum
	}
	before := asked()
	require.Positive(c.t, before, "the metric has another name by now")
	c.create(newPod("unmarked", corev1.DefaultSchedulerName, ""))
	c.awaitBound("unmarked")
	require.InDelta(c.t, before, asked(), 0, "the extender was called for a pod without the mark")

	c.apply(c.example("marked-pod.yaml"))
	marked, _ := c.awaitBound("marked")
	require.Equal(c.t, "node-1", marked.Spec.NodeName)
	require.Equal(c.t, "GPU-80b20001", given(marked))
	require.Greater(c.t, asked(), before)
	c.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimBound)
	for _, pod := range []string{"unmarked", "marked"} {
		c.deletePod(pod)
		c.awaitGone(pod)
	}
}

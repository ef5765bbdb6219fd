package devices

import (
	"fmt"
	"path/filepath"
	"slices"
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
	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/e2e/testbed"
)

// TestWalkThrough goes through examples/extended-resources on the two nodes it speaks of, with both of the
// setups it shows: pods without a schedulerName go to a kube-scheduler with managed-resources.yaml.
func TestWalkThrough(t *testing.T) {
	c := newCluster(t, setup{
		own: &controlplane.Options{Workloads: true}, nodes: 2,
		args: slices.Concat([]string{"--ignored-resources=globalreserve.io/devices"}, clusterload.QuickLease),
	})
	c.AwaitUntainted("")
	c.StartKubeScheduler(corev1.DefaultSchedulerName, "managed-resources.yaml")
	c.startExampleScheduler()
	t.Run("one claim after another", func(t *testing.T) { walkClaims(c.in(t)) })
	t.Run("templates", func(t *testing.T) { walkTemplates(c.in(t)) })
	t.Run("a Job", func(t *testing.T) { walkJob(c.in(t)) })
	t.Run("managedResources", func(t *testing.T) { walkManaged(c.in(t)) })
	c.deleteClaims()
	require.NoError(t, c.Devices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, c.Client().CoreV1().Events(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	t.Run("README", func(t *testing.T) { walkReadme(c.in(t)) })
	c.awaitOwned(0) // kube-controller-manager deletes what pods owned; it knows the kind half a minute after its start
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
	require.Equal(c.T, "node-1", trainer.Spec.NodeName, "the node with the L4")
	require.Equal(c.T, "GPU-80b20001", given(trainer))
	claim := c.awaitClaim("l4-erc", v1alpha1.ExtendedResourceClaimBound)
	require.Equal(c.T, trainer.UID, claim.Status.PodRef.UID)
	require.Equal(c.T, "l4-erc", c.awaitDevice("node-1-l4-0", v1alpha1.ExtendedResourceBound).Status.ClaimRef.Name)
	c.requireAvailable("node-0-h100-0", "node-0-h100-1")

	c.scale(0)
	c.awaitDevice("node-1-l4-0", v1alpha1.ExtendedResourceAvailable)
	c.awaitClaim("l4-erc", v1alpha1.ExtendedResourceClaimPending)
	c.scale(1)

	c.example("waiting-pod.yaml")
	require.Contains(c.T, c.AwaitRefused("next"), "GlobalReserve: another pod has a device claim of the pod")
	c.AwaitEvent("Pod", "next", "DeviceClaimInUse", "ExtendedResourceClaim l4-erc is in use by pod trainer-")
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
	c.AwaitEvent("Pod", "bad", "DeviceClaimUnusable", "there is no ExtendedResourceClaim l40-erc in namespace default")
	c.requireConsistent()
	c.Delete("next", "large", "bad")
	require.NoError(c.T, c.Client().AppsV1().Deployments(namespace).Delete(c.T.Context(), "trainer", metav1.DeleteOptions{}))
}

// walkTemplates has each pod of a Deployment get a claim of its own, also where the server is killed meanwhile, which
// goes with the pod; and a pod whose containers have claims of their own.
func walkTemplates(c *cluster) {
	c.example("template.yaml")
	c.Server.Crash(c.T) // when pods are there, and claims perhaps
	owners := c.awaitOwned(3)
	c.Eventually(func(t *assert.CollectT) { assert.Len(t, c.boundPods(), 3) })
	ids := map[string]bool{}
	for _, pod := range c.boundPods() {
		ids[given(&pod)] = true
		require.Contains(c.T, owners, pod.UID)
	}
	require.Equal(c.T, map[string]bool{"GPU-80b20001": true, "GPU-7a1c0001": true, "GPU-7a1c0002": true}, ids)
	c.requireConsistent()
	require.NoError(c.T, c.Objects.GlobalreserveV1alpha1().ExtendedResourceClaimTemplates(namespace).Delete(c.T.Context(), "one-gpu", metav1.DeleteOptions{}))
	require.NoError(c.T, c.Client().AppsV1().Deployments(namespace).Delete(c.T.Context(), "workers", metav1.DeleteOptions{}))
	c.requireAvailable("node-0-h100-0", "node-0-h100-1", "node-1-l4-0")

	c.example("containers-pod.yaml")
	pod, _ := c.AwaitBound("containers")
	require.Equal(c.T, "train=GPU-7a1c0001,GPU-7a1c0002;watch=GPU-7a1c0002", given(pod))
	c.awaitClaim("second-h100", v1alpha1.ExtendedResourceClaimBound)
	c.Server.Crash(c.T)
	c.requireConsistent()
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

// walkJob has the pod of a Job finish, which gives its device back although the pod is still there.
func walkJob(c *cluster) {
	c.Apply(`
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    metadata:
      annotations: {globalreserve.io/extended-resource-claims: l4-erc}
    spec:
      schedulerName: extended-resource-scheduler
      restartPolicy: Never
      containers: [{name: main, image: none}]
`)
	var pod corev1.Pod
	c.Eventually(func(t *assert.CollectT) { // it has the device for half a second only
		list, err := c.Client().CoreV1().Pods(namespace).List(c.T.Context(), metav1.ListOptions{LabelSelector: "job-name=once"})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		pod = list.Items[0]
		assert.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
	})
	require.Equal(c.T, "GPU-80b20001", given(&pod))
	c.requireConsistent() // no pod has it
	background := metav1.DeletePropagationBackground
	require.NoError(c.T, c.Client().BatchV1().Jobs(namespace).Delete(c.T.Context(), "once", metav1.DeleteOptions{PropagationPolicy: &background}))
	c.Eventually(func(t *assert.CollectT) { assert.Nil(t, c.FindPod(pod.Name)) })
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
	c.awaitClaim("l4-erc", v1alpha1.ExtendedResourceClaimBound)
	c.Delete("unmarked", "marked")
}

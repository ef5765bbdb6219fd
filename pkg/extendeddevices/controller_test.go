package extendeddevices

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

const k80 = `selector: {matchProperties: {model: K80}}`

func TestLifeOfAClaim(t *testing.T) {
	w := newWorld(t, device("a", "n1", "T4"), device("b", "n2", "K80"), claimFor(t, "k80-erc", k80))
	w.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimPending)
	w.awaitDevice("b", v1alpha1.ExtendedResourceAvailable)
	assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("p", "k80-erc", "", ""), "n1"))

	require.Equal(t, "GPU-b", w.bind("p", "k80-erc", "n2"))
	status := w.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimBound)
	assert.Equal(t, "n2", status.NodeName)
	assert.Equal(t, []string{"b"}, status.ExtendedResources)
	assert.Equal(t, &v1alpha1.PodReference{Name: "p", UID: "uid-p"}, status.PodRef)
	assert.Equal(t, metav1.ConditionTrue, status.Conditions[0].Status)
	assert.EqualValues(t, 1, status.ObservedGeneration)
	assert.Equal(t, &v1alpha1.ExtendedResourceClaimReference{Namespace: "default", Name: "k80-erc", UID: "uid-k80-erc"},
		w.awaitDevice("b", v1alpha1.ExtendedResourceBound).ClaimRef)
	w.awaitEvent("Normal Bound pod p has b on node n2")
	assert.Equal(t, ledger.DeviceClaimInUse, w.fits(w.pod("q", "k80-erc", "", ""), "n2"))

	w.remove("p")
	assert.Nil(t, w.awaitClaim("k80-erc", v1alpha1.ExtendedResourceClaimPending).PodRef)
	assert.Nil(t, w.awaitDevice("b", v1alpha1.ExtendedResourceAvailable).ClaimRef)
	w.awaitEvent("Released")
	assert.Equal(t, ledger.Fits, w.fits(w.pod("q", "k80-erc", "", ""), "n2"))
}

// A device that is reserved for a pod, and a bind that has not ended, are no news for objects yet.
func TestReservedIsNotBound(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), claimFor(t, "c", k80), claimFor(t, "d", k80))
	pod := w.pod("p", "c", "", "")
	placement := pod.Placement("n1")
	placement.Devices = w.controller.Devices(pod)
	_, rejection := w.ledger.StartBind(&placement, time.Now())
	require.Nil(t, rejection)
	for range 2 { // the finalizer first, where it is not there yet
		require.NoError(t, w.controller.sync(t.Context(), object{namespace: "default", name: "c"}))
		require.NoError(t, w.controller.sync(t.Context(), object{name: "a"}))
	}
	w.awaitClaim("c", v1alpha1.ExtendedResourceClaimPending)
	w.awaitDevice("a", v1alpha1.ExtendedResourceAvailable)
	assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("q", "d", "", ""), "n1"))
	w.observe(w.pod("p", "c", "n1", "GPU-a"))
	w.awaitClaim("c", v1alpha1.ExtendedResourceClaimBound)
}

// What somebody else writes into a status is put back, and decides nothing.
func TestStatusOfSomebodyElse(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), claimFor(t, "c", k80), claimFor(t, "d", k80))
	w.bind("p", "c", "n1")
	bound := w.awaitClaim("c", v1alpha1.ExtendedResourceClaimBound)
	w.awaitDevice("a", v1alpha1.ExtendedResourceBound)
	claim, err := w.claims().Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	claim.Status = v1alpha1.ExtendedResourceClaimStatus{Phase: v1alpha1.ExtendedResourceClaimPending}
	_, err = w.claims().UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
	written, err := w.devices().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	written.Status = v1alpha1.ExtendedResourceStatus{Phase: v1alpha1.ExtendedResourceAvailable}
	_, err = w.devices().UpdateStatus(t.Context(), written, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("q", "d", "", ""), "n1"))
	assert.Equal(t, bound.PodRef, w.awaitClaim("c", v1alpha1.ExtendedResourceClaimBound).PodRef)
	assert.Equal(t, "c", w.awaitDevice("a", v1alpha1.ExtendedResourceBound).ClaimRef.Name)
}

func TestOffline(t *testing.T) {
	twin := device("a2", "n1", "K80")
	twin.Spec.DeviceID = "GPU-a"
	w := newWorld(t, device("a", "n1", "K80"), twin, device("b", "nowhere", "K80"))
	w.awaitDevice("a", v1alpha1.ExtendedResourceAvailable)
	assert.Equal(t, reasonSameDevice, w.awaitDevice("a2", v1alpha1.ExtendedResourceOffline).Conditions[0].Reason)
	assert.Equal(t, reasonNoNode, w.awaitDevice("b", v1alpha1.ExtendedResourceOffline).Conditions[0].Reason)

	w.addNode("nowhere")
	w.awaitDevice("b", v1alpha1.ExtendedResourceAvailable)
	w.removeNode("n1")
	w.awaitDevice("a", v1alpha1.ExtendedResourceOffline)
	w.awaitEvent("Warning NodeGone there is no node n1")
	require.NoError(t, w.devices().Delete(t.Context(), "a", metav1.DeleteOptions{}))
	w.addNode("n1")
	w.awaitDevice("a2", v1alpha1.ExtendedResourceAvailable)
}

// A claim keeps its finalizer, and its pod the devices, until the pod is gone. No other pod gets the claim.
func TestClaimDeletedWhileItsPodRuns(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), device("b", "n1", "K80"), claimFor(t, "c", k80))
	w.awaitClaimThat("c", func(t *assert.CollectT, claim *v1alpha1.ExtendedResourceClaim) {
		assert.Equal(t, []string{v1alpha1.ExtendedResourceClaimFinalizer}, claim.Finalizers)
	})
	given := w.bind("p", "c", "n1")
	w.awaitClaim("c", v1alpha1.ExtendedResourceClaimBound)
	w.changeClaim("c", func(claim *v1alpha1.ExtendedResourceClaim) {
		claim.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-time.Minute)}
		claim.Generation++
	})
	w.awaitClaimThat("c", func(t *assert.CollectT, claim *v1alpha1.ExtendedResourceClaim) {
		assert.Equal(t, claim.Generation, claim.Status.ObservedGeneration)
		assert.NotEmpty(t, claim.Finalizers)
	})
	assert.Equal(t, ledger.DeviceClaimUnusable, w.fits(w.pod("q", "c", "", ""), "n1"))
	w.observe(w.pod("p", "c", "n1", given)) // as after a restart
	view, _, _ := w.ledger.Node("n1")
	free := 0
	for _, d := range view.Devices {
		if d.Free {
			free++
		}
	}
	assert.Equal(t, 1, free, "the devices stay counted")

	w.remove("p")
	w.awaitClaimThat("c", func(t *assert.CollectT, claim *v1alpha1.ExtendedResourceClaim) {
		assert.Empty(t, claim.Finalizers)
	})
}

// How long a claim is kept counts from when this server learns of its deletion: the API server has a clock of its own,
// and the news may be late. The claim of a pod is kept until that is gone.
func TestDeletedClaimIsKeptForAWhile(t *testing.T) {
	for _, used := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			deleted := claimFor(t, "c", k80)
			deleted.Finalizers = []string{v1alpha1.ExtendedResourceClaimFinalizer}
			deleted.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-time.Hour)}
			w := newWorld(t, device("a", "n1", "K80"), deleted)
			if used {
				w.observe(w.pod("p", "c", "n1", "GPU-a"))
			}
			has := func() []string {
				<-time.After(settleTime * 3 / 4)
				synctest.Wait()
				claim, err := w.claims().Get(t.Context(), "c", metav1.GetOptions{})
				require.NoError(t, err)
				return claim.Finalizers
			}
			assert.Equal(t, deleted.Finalizers, has())
			w.changeClaim("c", func(claim *v1alpha1.ExtendedResourceClaim) { claim.Generation++ })
			assert.Equal(t, used, len(has()) > 0, "whoever changes it does not keep it")
			if used {
				w.remove("p")
				assert.Empty(t, has())
			}
		})
	}
}

func TestResolving(t *testing.T) {
	bad := claimFor(t, "bad", `{selector: {matchExpressions: [{key: memory, operator: Gt, values: [lots]}]}}`)
	none := claimFor(t, "none", `{count: 0}`)
	elsewhere := claimFor(t, "elsewhere", `{}`)
	elsewhere.Namespace = "other"
	w := newWorld(t, device("a", "n1", "K80"), claimFor(t, "c", k80), claimFor(t, "two", `count: 2`), bad, none, elsewhere,
		claimFor(t, "wrong", `resourceName: intel.com/nic`))
	for range 2 {
		w.awaitEvent("Warning InvalidSpec") // of bad and none, as they are met
	}
	assert.Nil(t, w.controller.Devices(w.pod("p", "", "", "")))
	got := w.controller.Devices(w.pod("p", "c,two", "", ""))
	require.Empty(t, got.Err)
	assert.Equal(t, []ledger.DeviceClaimRef{
		{Namespace: "default", Name: "c", UID: "uid-c"},
		{Namespace: "default", Name: "two", UID: "uid-two"},
	}, got.Claims)
	assert.Equal(t, "1 nvidia.com/gpu (model In K80)", got.Requests[0].String())
	for claims, want := range map[string]string{
		"missing":   "there is no ExtendedResourceClaim missing in namespace default",
		"elsewhere": "claims of other namespaces cannot be used",
		"bad":       "ExtendedResourceClaim bad cannot be used: spec.selector",
		"none":      "ExtendedResourceClaim none cannot be used: spec.count",
		"c,missing": "no ExtendedResourceClaim missing",
		"other/c":   "is no claim's name",
		"c,c":       "c is named twice",
	} {
		pod := w.pod("p-"+claims, claims, "", "")
		assert.Contains(t, w.controller.Devices(pod).Err, want, claims)
		assert.Equal(t, ledger.DeviceClaimUnusable, w.fits(pod, "n1"), claims)
		w.assertTrouble(pod, ledger.DeviceClaimUnusable, want)
	}
	for claims, want := range map[string]string{
		"wrong": "ExtendedResourceClaim wrong asks for 1 intel.com/nic: no node has these devices",
		"two":   "ExtendedResourceClaim two asks for 2 nvidia.com/gpu",
	} {
		w.assertTrouble(w.pod("p-"+claims, claims, "", ""), ledger.InsufficientDevices, want)
	}
	assert.Equal(t, reasonInvalid, w.awaitClaim("bad", v1alpha1.ExtendedResourceClaimPending).Conditions[0].Reason)
	w.bind("p", "c", "n1")
	w.eventually(func(t *assert.CollectT) {
		reason, _ := w.controller.Trouble(w.pod("q", "c", "", ""))
		assert.Equal(t, ledger.DeviceClaimInUse, reason)
	})
}

// A pod that was found bound before its claim was seen is observed again, and then has its devices.
func TestClaimThatComesLate(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"))
	w.observe(w.pod("p", "c", "n1", "GPU-a"))
	w.awaitDevice("a", v1alpha1.ExtendedResourceBound)
	_, err := w.claims().Create(t.Context(), claimFor(t, "c", k80), metav1.CreateOptions{})
	require.NoError(t, err)
	w.eventually(func(t *assert.CollectT) {
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Equal(t, []string{"default/c"}, w.changed)
	})
	w.observe(w.pod("p", "c", "n1", "GPU-a"))
	w.eventually(func(t *assert.CollectT) {
		claim, err := w.claims().Get(w.Context(), "c", metav1.GetOptions{})
		if assert.NoError(t, err) {
			assert.Equal(t, []string{"a"}, claim.Status.ExtendedResources)
		}
		d, err := w.devices().Get(w.Context(), "a", metav1.GetOptions{})
		if assert.NoError(t, err) && assert.NotNil(t, d.Status.ClaimRef) {
			assert.Equal(t, "c", d.Status.ClaimRef.Name)
		}
	})
}

// A scheduler that nobody configured binds a pod and gives it nothing.
func TestPodBoundAroundTheLedger(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), claimFor(t, "c", k80))
	w.observe(w.pod("p", "c", "n1", ""))
	status := w.awaitClaim("c", v1alpha1.ExtendedResourceClaimBound)
	assert.Equal(t, "p", status.PodRef.Name)
	assert.Equal(t, metav1.ConditionFalse, status.Conditions[0].Status)
	assert.Equal(t, reasonNotGiven, status.Conditions[0].Reason)
	w.awaitDevice("a", v1alpha1.ExtendedResourceAvailable)
}

// TestDefinitionsComeAndGo installs the definitions, and uninstalls them, with which their objects go. The server works
// without devices.
func TestDefinitionsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := makeWorld(t, device("a", "n1", "K80"), claimFor(t, "c", k80))
		w.start()
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		pod := w.pod("p", "c", "", "")
		without := func() {
			assert.False(t, w.controller.Watch.Listed())
			assert.True(t, w.controller.Ready.IsOpen())
			assert.Contains(t, w.controller.Devices(pod).Err, "install manifests/crd")
			assert.Equal(t, ledger.DeviceClaimUnusable, w.fits(pod, "n1"))
			assert.Equal(t, ledger.Fits, w.fits(w.pod("q", "", "", ""), "n1"))
		}
		without()
		w.served.Store(true)
		pass(noticed)
		require.True(t, w.controller.Watch.Listed())
		require.Equal(t, ledger.Fits, w.fits(pod, "n1"))

		w.served.Store(false)
		pass(noticed)
		without()
		node, _, _ := w.ledger.Node("n1")
		assert.Empty(t, node.Devices)

		w.changed = nil
		w.served.Store(true)
		pass(noticed)
		assert.True(t, w.controller.Watch.Listed())
		assert.Equal(t, []string{"default/c"}, w.changed, "pods that wait for it have news")
		assert.Equal(t, ledger.Fits, w.fits(pod, "n1"))
		assert.Equal(t, "GPU-a", w.bind("p", "c", "n1"))
		w.awaitClaim("c", v1alpha1.ExtendedResourceClaimBound)
	})
}

package dra

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/dra/account"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/kube/informer"
)

// world is a Controller and an API server that the test plays.
type world struct {
	*Controller
	t        *testing.T
	client   *fake.Clientset
	recorder *events.FakeRecorder

	mu      sync.Mutex // guards what follows
	version int
	refuses error // of patches
	full    bool  // no claim has place for another annotation
	patched []string
	offered map[string]string // by slice, in words
}

func (w *world) onOffered(slice string, offered []cluster.DRAOffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.offered, slice)
	for _, o := range offered {
		on := cmp.Or(o.Node, "all nodes")
		if o.Selector != nil {
			on = "some nodes"
		}
		w.offered[slice] += fmt.Sprintf("%s: %s; ", on, o.Resources)
	}
}

// inWorld runs a test with the claims that are there at the start.
func inWorld(t *testing.T, claims []*resourcev1.ResourceClaim, test func(w *world), before ...func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, client: fake.NewClientset(), recorder: events.NewFakeRecorder(100), version: 100,
			offered: map[string]string{},
		}
		w.client.Resources = []*metav1.APIResourceList{{
			GroupVersion: resourcev1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{
				{Name: "resourceclaims"},
				{Name: "resourceslices"},
				{Name: "deviceclasses"},
			},
		}}
		stock := sliceOn("stock", "d", "n", slices.Repeat([]string{"gpu-"}, 10)...)
		stock.Spec.Pool.Name = "p"
		require.NoError(t, w.client.Tracker().Add(stock))
		w.client.PrependReactor("patch", "resourceclaims", w.patch)
		for _, claim := range claims {
			w.write(claim)
		}
		for _, change := range before {
			change(w)
		}
		log, _ := logtest.NewNullLogger()
		w.Controller = New(Options{
			OnOffered: w.onOffered, Client: w.client, Discovery: w.client.Discovery(),
			Recorder: w.recorder, Log: log,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, w.Run(ctx)) })
		synctest.Wait()
		test(w)
		cancel()
		running.Wait()
	})
}

// write is a write of a claim by somebody.
func (w *world) write(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	w.t.Helper()
	w.version++
	claim = claim.DeepCopy()
	claim.ResourceVersion = strconv.Itoa(w.version)
	resource := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	err := w.client.Tracker().Update(resource, claim, claim.Namespace)
	if apierrors.IsNotFound(err) {
		err = w.client.Tracker().Create(resource, claim, claim.Namespace)
	}
	require.NoError(w.t, err)
	return claim
}

func (w *world) delete(name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Tracker().Delete(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "ns",
		name))
}

// patch makes a new version of a claim, unless that is refused.
func (w *world) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	name := action.(clienttesting.PatchAction).GetName()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patched = append(w.patched, name)
	if w.refuses != nil {
		return true, nil, w.refuses
	}
	if w.full && bytes.Contains(action.(clienttesting.PatchAction).GetPatch(), []byte("annotations")) {
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceClaim"}, name, nil)
	}
	obj, err := w.client.Tracker().Get(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "ns", name)
	if err != nil {
		return true, nil, err
	}
	return true, w.write(obj.(*resourcev1.ResourceClaim)), nil
}

// patches returns which claims were patched since it was called last.
func (w *world) patches() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	news := w.patched
	w.patched = nil
	return news
}

func (w *world) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = err
}

// asks decides on a write of a device to a claim that the API server has in a version.
func (w *world) asks(name, device string, base int) *account.Refusal {
	w.t.Helper()
	refusal, err := w.Grant(w.t.Context(), claim(name, device), int64(base), 0, false)
	require.NoError(w.t, err)
	return refusal
}

// claim has devices, if any are named.
func claim(name string, devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name,
		UID: types.UID("uid-" + name),
	}}
	for _, d := range devices {
		if c.Status.Allocation == nil {
			c.Status.Allocation = &resourcev1.AllocationResult{}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "r", Driver: "d", Pool: "p", Device: d})
	}
	return c
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// tick is more than it takes to do what is due.
const tick = time.Second

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "resourceclaims"}, "x", nil)

// What a server before this one has granted is taken, or can no longer be written, before anything is granted.
func TestWritesOfTheServerBefore(t *testing.T) {
	inWorld(t, []*resourcev1.ResourceClaim{claim("a"), claim("b", "gpu-0"), claim("c")}, func(w *world) {
		assert.ElementsMatch(w.t, []string{"a", "c"}, w.patches(), "those that may be given devices by it")
		assert.NotNil(w.t, w.asks("a", "gpu-0", w.version))
		assert.Nil(w.t, w.asks("a", "gpu-1", w.version))
	})
}

// Where a claim cannot be patched, nothing is granted until the API server has ended the requests from before.
func TestClaimsCannotBePatched(t *testing.T) {
	forbidden := func(w *world) { w.refuses = errForbidden }
	inWorld(t, []*resourcev1.ResourceClaim{claim("a")}, func(w *world) {
		ask := func() error {
			_, err := w.Grant(w.t.Context(), claim("b", "gpu-0"), int64(w.version), 0, false)
			return err
		}
		require.ErrorIs(w.t, ask(), errUnsettled)
		pass(abandonedAfter - 2*patience - tick)
		require.ErrorIs(w.t, ask(), errUnsettled)
		pass(grace + 2*tick)
		require.NoError(w.t, ask())
	}, forbidden)
	inWorld(t, nil, func(w *world) {
		assert.Nil(w.t, w.asks("new", "gpu-7", w.version), "no claim waits for devices")
	}, forbidden)
}

// The author of a claim has filled its annotations, for which the API server refuses another one: nobody waits for
// that.
func TestClaimWithAllTheAnnotationsThereMayBe(t *testing.T) {
	inWorld(t, []*resourcev1.ResourceClaim{claim("a")}, func(w *world) {
		assert.Nil(w.t, w.asks("b", "gpu-0", w.version))
	}, func(w *world) { w.full = true })
}

// padded adds blanks to a claim, 10 KiB in the parameters of each of 32 requests, and so many bytes of selectors. The
// blanks are there in etcd, and in a list.
func padded(c *resourcev1.ResourceClaim, bytes int) *resourcev1.ResourceClaim {
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: strings.Repeat("x", bytes),
	}}}
	for range resourcev1.DeviceConfigMaxSize {
		config := resourcev1.DeviceClaimConfiguration{}
		config.Opaque = &resourcev1.OpaqueDeviceConfiguration{Driver: "d", Parameters: runtime.RawExtension{
			Raw: []byte(`{"a":` + strings.Repeat(" ", resourcev1.OpaqueParametersMaxLength-10) + `"b"}`),
		}}
		c.Spec.Devices.Config = append(c.Spec.Devices.Config, config)
	}
	return c
}

// A claim that may be too large for another annotation is given nothing, so that nobody has to wait for it. Any other
// one may have been given something by the server before, however its size was measured.
func TestClaimIsTooLarge(t *testing.T) {
	for bytes, large := range map[int]bool{900 << 10: false, account.MaxClaimSize: false, 1400 << 10: true} {
		stored := padded(claim("a"), bytes)
		text, err := json.Marshal(stored) // as the admission webhook has it
		require.NoError(t, err)
		inWorld(t, []*resourcev1.ResourceClaim{stored, padded(claim("had", "gpu-9"), bytes)}, func(w *world) {
			grant := func(c *resourcev1.ResourceClaim, base int) *account.Refusal {
				refusal, err := w.Grant(w.t.Context(), c, int64(base), len(text), false)
				require.NoError(w.t, err)
				return refusal
			}
			refusal := grant(claim("a", "gpu-0"), w.version)
			if granted := refusal == nil; granted || !large {
				assert.Equal(w.t, []string{"a"}, w.patches(), "the server before may have granted it, as this one: %d", bytes)
			} else {
				assert.Empty(w.t, w.patches(), bytes)
			}
			assert.Equal(w.t, len(text) > account.MaxClaimSize, refusal != nil)
			if refusal != nil {
				assert.Equal(w.t, account.TooLarge, refusal.Reason)
				assert.Contains(w.t, refusal.Message(), "ResourceClaim ns/a has more than 1048576 bytes")
				assert.Nil(w.t, w.asks("b", "gpu-0", w.version))
			}
			assert.Nil(w.t, grant(claim("had", "gpu-9"), 102), "it may be written with what it has")
		})
	}
	lean, err := leanClaim(padded(claim("a"), 1400<<10))
	require.NoError(t, err)
	again, err := leanClaim(lean)
	require.NoError(t, err)
	assert.True(t, isTooLarge(again.(*resourcev1.ResourceClaim)))
}

// Claims that cannot be patched are tried less and less often.
func TestPatchesArePaced(t *testing.T) {
	inWorld(t, []*resourcev1.ResourceClaim{claim("a")}, func(w *world) {
		pass(abandonedAfter - tick)
		assert.Len(w.t, w.patches(), 5)
		pass(2 * tick)
		w.refuse(nil)
		assert.Nil(w.t, w.asks("b", "gpu-0", w.version))
	}, func(w *world) { w.refuse(apierrors.NewInternalError(errors.New("a webhook"))) })
}

// A write that was granted and does not show up is made impossible, and its device is free.
func TestWriteDoesNotShowUp(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		base := account.Version(w.write(claim("a")).ResourceVersion)
		w.write(claim("b"))
		synctest.Wait()
		require.Nil(w.t, w.asks("a", "gpu-0", int(base)))
		require.NotNil(w.t, w.asks("b", "gpu-0", w.version))
		pass(grace - tick)
		assert.Empty(w.t, w.patches())
		require.NotNil(w.t, w.asks("b", "gpu-0", w.version))
		pass(2 * tick)
		assert.Equal(w.t, []string{"a"}, w.patches())
		assert.Nil(w.t, w.asks("b", "gpu-0", w.version))
		assert.Equal(w.t, account.Outdated, w.asks("a", "gpu-1", int(base)).Reason, "the API server refuses it, too")
	})
}

// Another webhook is slow: a write whose devices nobody else wants has the time that it needs. Else each try would be
// made impossible, and the claim never be given anything.
func TestSlowWrite(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.write(claim("a"))
		require.Nil(w.t, w.asks("a", "gpu-0", w.version))
		pass(4 * grace)
		assert.Empty(w.t, w.patches())
		require.NotNil(w.t, w.asks("b", "gpu-0", w.version))
		pass(2 * tick)
		assert.Equal(w.t, []string{"a"}, w.patches(), "somebody wants it")
		require.Nil(w.t, w.asks("b", "gpu-0", w.version))
		pass(abandonedAfter + 2*tick)
		assert.Equal(w.t, []string{"b"}, w.patches(), "it is over by now")
	})
}

// Where it cannot be made impossible, the device stays taken until the API server has ended the request.
func TestWriteCannotBeWithdrawn(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.refuse(errForbidden)
		w.write(claim("a"))
		require.Nil(w.t, w.asks("a", "gpu-0", w.version))
		pass(abandonedAfter - tick)
		require.NotNil(w.t, w.asks("b", "gpu-0", w.version))
		pass(grace + 2*tick)
		assert.Nil(w.t, w.asks("b", "gpu-0", w.version))
	})
}

// A write shows up, or its claim goes: nobody patches anything.
func TestWriteIsSeen(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.write(claim("a"))
		require.Nil(w.t, w.asks("a", "gpu-0", w.version))
		w.write(claim("a", "gpu-0"))
		w.write(claim("b"))
		require.Nil(w.t, w.asks("b", "gpu-1", w.version))
		w.delete("b")
		pass(time.Minute)
		assert.Empty(w.t, w.patches())
		require.NotNil(w.t, w.asks("c", "gpu-0", w.version))
		w.delete("a")
		synctest.Wait()
		assert.Nil(w.t, w.asks("c", "gpu-0", w.version))
	})
}

// A claim was granted devices, and is gone before the watch has delivered it.
func TestClaimWasNeverSeen(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		require.Nil(w.t, w.asks("gone", "gpu-0", 50))
		require.NotNil(w.t, w.asks("b", "gpu-0", w.version))
		pass(grace + 2*tick)
		assert.Equal(w.t, []string{"gone"}, w.patches())
		assert.Nil(w.t, w.asks("b", "gpu-0", w.version))
	})
}

// A claim was deleted and another one of its name was made while the watch was interrupted: a list has the new one
// only.
func TestClaimWasReplacedUnseen(t *testing.T) {
	inWorld(t, []*resourcev1.ResourceClaim{claim("a", "gpu-0")}, func(w *world) {
		require.NotNil(w.t, w.asks("b", "gpu-0", w.version))
		successor := claim("a", "gpu-1")
		successor.UID = "uid-of-another"
		w.write(successor)
		synctest.Wait()
		assert.Nil(w.t, w.asks("b", "gpu-0", w.version), "nobody has it")
		assert.NotNil(w.t, w.asks("c", "gpu-1", w.version))
	})
}

func TestADryRunGrantsNothing(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		refusal, err := w.Grant(w.t.Context(), claim("a", "gpu-0"), 5, 0, true)
		require.NoError(w.t, err)
		require.Nil(w.t, refusal)
		require.Nil(w.t, w.asks("b", "gpu-0", 5))
		refusal, err = w.Grant(w.t.Context(), claim("a", "gpu-0"), 5, 0, true)
		require.NoError(w.t, err)
		assert.Equal(w.t, []account.Owner{{Namespace: "ns", Name: "b", UID: "uid-b"}}, refusal.Owners)
	})
}

// A double is reported once, on both claims, and again when it comes again.
func TestDoublesAreTold(t *testing.T) {
	inWorld(t, []*resourcev1.ResourceClaim{claim("a", "gpu-0"), claim("b", "gpu-0")}, func(w *world) {
		pass(2 * settleDown)
		assert.Len(w.t, w.Doubles(), 1)
		assert.Len(w.t, w.recorder.Events, 2)
		w.write(claim("c", "gpu-1"))
		pass(2 * settleDown)
		assert.Len(w.t, w.recorder.Events, 2)
		require.Equal(w.t, account.Doubled, w.asks("d", "gpu-0", w.version).Reason)
		w.delete("a")
		pass(2 * settleDown)
		assert.Empty(w.t, w.Doubles())
		require.Equal(w.t, account.DeviceInUse, w.asks("d", "gpu-0", w.version).Reason, "b has it still")
		w.write(claim("e", "gpu-0"))
		pass(2 * settleDown)
		assert.Len(w.t, w.recorder.Events, 4)
	})
}

// Each owner has its Event in its namespace, which does not see the others.
func TestDoublesNameNobodyOfAnotherNamespace(t *testing.T) {
	secret := claim("secret", "gpu-0")
	secret.Namespace = "others"
	inWorld(t, []*resourcev1.ResourceClaim{claim("a", "gpu-0"), secret}, func(w *world) {
		pass(2 * settleDown)
		require.Len(w.t, w.recorder.Events, 2)
		for range 2 {
			note := <-w.recorder.Events
			assert.Contains(w.t, note, "(of another namespace)")
			assert.NotEqual(w.t, strings.Contains(note, "ns/a"), strings.Contains(note, "others/secret"), note)
		}
	})
}

// A claim has devices, and its pod gets no node.
func TestClaimsOfPodsThatWait(t *testing.T) {
	held := claim("a", "gpu-0")
	held.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "uid-p"}}
	inWorld(t, []*resourcev1.ResourceClaim{held, claim("b", "gpu-1")}, func(w *world) {
		waits := func(namespace, name string, uid types.UID) bool {
			return namespace == "ns" && name == "p" && uid == "uid-p"
		}
		assert.Zero(w.t, w.Unbound(waits), "the pod is bound next")
		pass(20 * time.Second)
		w.write(held) // something else of it changes
		pass(20 * time.Second)
		assert.Equal(w.t, []Held{{Namespace: "ns", Name: "a", Devices: []account.Device{{
			Driver: "d", Pool: "p",
			Name: "gpu-0",
		}}, For: 40 * time.Second}}, w.HeldFor("ns", "uid-p"))
		assert.Empty(w.t, w.HeldFor("ns", "uid-q"))
		assert.Empty(w.t, w.HeldFor("other", "uid-p"), "a claim of another namespace")
		assert.Equal(w.t, 1, w.Unbound(waits))
		assert.Zero(w.t, w.Unbound(func(string, string, types.UID) bool { return false }))
	})
}

// There are more doubles than Events that may be written at once: all owners get theirs in the end, each once.
func TestManyDoublesAreTold(t *testing.T) {
	const doubles = eventBurst - 10
	var claims []*resourcev1.ResourceClaim
	for i := range 2 * doubles {
		claims = append(claims, claim(fmt.Sprint("c", i), fmt.Sprint("gpu-", i/2)))
	}
	inWorld(t, claims, func(w *world) {
		pass(time.Minute)
		assert.Len(w.t, w.recorder.Events, 2*doubles)
	})
}

// Where the cluster has no DRA nobody asks, and if somebody does nothing is granted.
func TestNoDRA(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		pass(time.Hour)
		_, err := w.Grant(w.t.Context(), claim("a", "gpu-0"), 5, 0, false)
		require.ErrorIs(w.t, err, errUnread)
		assert.Empty(w.t, informer.NewsOf(w.Watches()...).Ages)
	}, func(w *world) { w.client.Resources[0].APIResources = nil })
}

// A device is not said to be free while nobody knows who has it.
func TestDevicesOfClaimsThatCannotBeRead(t *testing.T) {
	for _, may := range []bool{true, false} {
		inWorld(t, nil, func(w *world) {
			pass(time.Minute)
			assert.Equal(t, may, len(w.OnNode("n")) > 0)
		}, func(w *world) {
			w.client.PrependReactor("list", "resourceclaims",
				func(clienttesting.Action) (bool, runtime.Object, error) { return !may, nil, errForbidden })
		})
	}
}

package extendeddevices

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// templateFor is an object of a template, by its spec in YAML.
func templateFor(t *testing.T, name, spec string) *v1alpha1.ExtendedResourceClaimTemplate {
	t.Helper()
	return &v1alpha1.ExtendedResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: claimFor(t, name, spec).Spec,
	}
}

// pending has a pod seen that waits, and returns it.
func (w *world) pending(name, claims string) *cluster.Pod {
	w.Helper()
	pod := w.pod(name, claims, "", "")
	w.pods.Put(pod)
	w.controller.Waits(pod)
	return pod
}

// made is the name of the claim that a pod gets from a template.
func made(pod *cluster.Pod, template string) string {
	return devices.TemplateClaim(pod.Ref.Name, pod.Ref.UID, template)
}

// inWorld runs a test in a world, in a bubble, where settle waits until nothing happens any more.
func inWorld(t *testing.T, test func(t *testing.T, w *world, settle func()), objects ...runtime.Object) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, objects...)
		test(t, w, func() {
			<-time.After(time.Second)
			synctest.Wait()
		})
	})
}

// requireClaims checks which claims there are.
func (w *world) requireClaims(t *testing.T, names ...string) map[string]v1alpha1.ExtendedResourceClaim {
	t.Helper()
	list, err := w.claims().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found, have := map[string]v1alpha1.ExtendedResourceClaim{}, []string{}
	for _, claim := range list.Items {
		found[claim.Name] = claim
		have = append(have, claim.Name)
	}
	require.ElementsMatch(t, names, have)
	return found
}

// Each of three pods gets a claim of its own from one template, and with that a device.
func TestClaimsFromATemplate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, settle func()) {
		w.changed = nil
		var names []string
		for _, name := range []string{"p", "q", "r"} {
			names = append(names, made(w.pending(name, "main=template:gpu;log=template:gpu"), "gpu"))
		}
		settle()
		claims := w.requireClaims(t, names...)
		claim := claims[names[0]]
		assert.Equal(t, []string{v1alpha1.ExtendedResourceClaimFinalizer}, claim.Finalizers)
		assert.Equal(t, map[string]string{v1alpha1.ClaimTemplateAnnotation: "gpu"}, claim.Annotations)
		controller := true
		assert.Equal(t, []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid-p",
			Controller: &controller,
		}}, claim.OwnerReferences)
		assert.Equal(t, templateFor(t, "gpu", k80).Spec, claim.Spec)
		assert.Subset(t, w.changed, []string{"default/" + names[0], "default/" + names[1]}, "the pods are tried again")

		assert.Equal(t, "main=GPU-a;log=GPU-a", w.bind("p", "main=template:gpu;log=template:gpu", "n1"))
		assert.Equal(t, "GPU-b", w.bind("q", "template:gpu", "n1"))
		assert.Equal(t, ledger.InsufficientDevices, w.fits(w.pod("r", "template:gpu", "", ""), "n1"))
		settle()
		assert.Equal(t, []string{"a"}, w.requireClaims(t, names...)[names[0]].Status.ExtendedResources)

		require.NoError(t, w.client.GlobalreserveV1alpha1().ExtendedResourceClaimTemplates("default").
			Delete(t.Context(), "gpu", metav1.DeleteOptions{}))
		settle()
		w.requireClaims(t, names...)
		w.remove("p")
		assert.Equal(t, ledger.Fits, w.fits(w.pod("r", "template:gpu", "", ""), "n1"),
			"its claim was made before the template went")
	}, device("a", "n1", "K80"), device("b", "n1", "K80"), templateFor(t, "gpu", k80))
}

// A pod that lacks a claim is refused with a reason, until what is missing is there; its claim is made then.
func TestTemplatesThatComeLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world, settle func()) {
		pod := w.pending("p", "one,template:gpu")
		settle()
		assert.Contains(t, w.controller.Devices(pod).Err,
			"there is no ExtendedResourceClaimTemplate gpu in namespace default: create it there")
		assert.Equal(t, ledger.DeviceClaimUnusable, w.fits(pod, "n1"))
		w.assertTrouble(pod, ledger.DeviceClaimUnusable, "there is no ExtendedResourceClaimTemplate gpu")

		templates := w.client.GlobalreserveV1alpha1().ExtendedResourceClaimTemplates("default")
		var allowed atomic.Bool
		var tries atomic.Int64
		w.client.PrependReactor("create", "extendedresourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries.Add(1)
			return !allowed.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "extendedresourceclaims"}, "c",
				assert.AnError)
		})
		_, err := templates.Create(t.Context(), templateFor(t, "gpu", "{}"), metav1.CreateOptions{})
		require.NoError(t, err)
		settle()
		assert.Contains(t, w.controller.Devices(pod).Err,
			"is not made yet: the server makes it, and the pod is tried again then")
		w.awaitEvent("Warning DeviceClaimNotMade")
		w.assertTrouble(pod, ledger.Fits, "") // what is about to heal is none
		<-time.After(time.Minute)
		assert.Less(t, tries.Load(), int64(8), "it is tried less and less often")

		allowed.Store(true)
		<-time.After(time.Minute)
		settle()
		w.requireClaims(t, "one", made(pod, "gpu"))
		assert.Equal(t, "GPU-a,GPU-b", w.bind("p", "one,template:gpu", "n1"))
	}, device("a", "n1", "K80"), device("b", "n1", "K80"), claimFor(t, "one", "{}"))
}

// A claim of the name that is not the pod's own is not used. Once it is gone the pod gets its own.
func TestClaimOfTheNameIsAnothers(t *testing.T) {
	name := devices.TemplateClaim("p", "uid-p", "gpu")
	inWorld(t, func(t *testing.T, w *world, settle func()) {
		pod := w.pending("p", "template:gpu")
		settle()
		assert.Contains(t, w.controller.Devices(pod).Err, "ExtendedResourceClaim "+name+" is not the pod's own: delete it")
		assert.Equal(t, ledger.DeviceClaimUnusable, w.fits(pod, "n1"))
		require.NoError(t, w.claims().Delete(t.Context(), name, metav1.DeleteOptions{}))
		settle()
		w.requireClaims(t, name)
		assert.Equal(t, ledger.Fits, w.fits(pod, "n1"))
	}, device("a", "n1", "K80"), templateFor(t, "gpu", "{}"), claimFor(t, name, "{}"))
}

// Whose a claim is can be put right: that is news for the pods that wait.
func TestOwnerIsNews(t *testing.T) {
	claims := newClaimSet()
	claim := claimFor(t, "c", "{}")
	assert.True(t, claims.set(claim))
	assert.False(t, claims.set(claim.DeepCopy()))
	owned := claim.DeepCopy()
	owned.OwnerReferences = claimFrom(templateFor(t, "gpu", "{}"), ledger.PodRef{Name: "p", UID: "uid-p"}, "c").
		OwnerReferences
	assert.True(t, claims.set(owned))
	owned.OwnerReferences[0].Kind = "ReplicaSet"
	assert.Empty(t, ownerOf(owned))
}

// A server that starts makes what its predecessor did not, and nothing else.
func TestClaimsMadeAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		template := templateFor(t, "gpu", "{}")
		p, q := ledger.PodRef{Namespace: "default", Name: "p", UID: "uid-p"},
			ledger.PodRef{Namespace: "default", Name: "q", UID: "uid-q"}
		had := claimFrom(template, p, devices.TemplateClaim("p", p.UID, "gpu"))
		w, podsKnown := newWorldAtStart(t, device("a", "n1", "K80"), template, had)
		w.pending("p", "template:gpu,template:other")
		w.pending("q", "template:gpu")
		bound, deleted := w.pod("bound", "template:gpu", "n1", ""), w.pod("deleted", "template:gpu", "", "")
		deleted.Deleting = true
		w.pods.Put(bound)
		w.pods.Put(deleted)
		synctest.Wait()
		w.requireClaims(t, had.Name)
		w.client.ClearActions()
		podsKnown()
		<-time.After(time.Second)
		synctest.Wait()
		made := devices.TemplateClaim("q", q.UID, "gpu")
		w.requireClaims(t, had.Name, made)
		for _, action := range w.client.Actions() {
			// again, where the watch had not brought it: it exists then
			if create, ok := action.(clienttesting.CreateActionImpl); ok {
				object, err := meta.Accessor(create.GetObject())
				require.NoError(t, err)
				assert.Equal(t, made, object.GetName())
			}
		}
	})
}

// A pod that is only asked about has no claim of its own.
func TestTemplatesOfPodsThatDoNotExist(t *testing.T) {
	w := newWorld(t, device("a", "n1", "K80"), templateFor(t, "gpu", "{}"))
	pod := w.pod("p", "template:gpu", "", "")
	asked := *pod
	asked.Ref.UID = ""
	assert.Contains(t, w.controller.Devices(&asked).Err, "is made for a pod that exists: create the pod")
}

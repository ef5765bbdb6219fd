package gangs

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

// The object of a gang is annotated anew each time it is touched, where its kind says that this is of use.
func TestTouch(t *testing.T) {
	run(t, vs(coscheduling, volcano), us(group(coscheduling, "g", int64(4)), group(volcano, "g", int64(4))),
		func(t *testing.T, w *world) {
			require.NoError(t, w.gangs.WaitForSync(t.Context()))
			var patches []clienttesting.PatchActionImpl
			w.client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				patches = append(patches, action.(clienttesting.PatchActionImpl))
				return false, nil, nil
			})
			var before string
			for range 2 {
				w.gangs.Touch(keyOf("scheduler-plugins", "g"))
				synctest.Wait()
				now := w.retry(coscheduling)
				assert.NotEmpty(t, now)
				assert.NotEqual(t, before, now)
				before = now
			}
			for _, key := range []kinds.Key{
				keyOf("volcano", "g"), keyOf("scheduler-plugins", "gone"),
				keyOf("globalreserve", "g"), keyOf("unknown", "g"),
			} {
				w.gangs.Touch(key)
			}
			follow.Pause(t.Context(), time.Minute)
			require.Len(t, patches, 2)
			assert.Equal(t, 2, w.touches("written"))
			assert.Zero(t, w.touches("failed"))
			assert.JSONEq(t, `{"metadata":{"uid":"g","annotations":{"globalreserve.io/retry":"`+before+`"}}}`,
				string(patches[1].Patch))
			assert.Equal(t, "globalreserve", patches[1].PatchOptions.FieldManager)
			require.Len(t, w.log.AllEntries(), 2)
			assert.Equal(t, "scheduler-plugins gang ns/g", w.log.LastEntry().Data["gang"])
		})
}

// There are so many touches in a second and no more, and one for an object that was touched twice before its turn came.
func TestTouchesAreFew(t *testing.T) {
	groups := us()
	for k := range 20 {
		groups = append(groups, group(coscheduling, fmt.Sprint("g", k), int64(4)))
	}
	run(t, vs(coscheduling), groups, func(t *testing.T, w *world) {
		require.NoError(t, w.gangs.WaitForSync(t.Context()))
		var count atomic.Int32
		w.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			count.Add(1)
			return false, nil, nil
		})
		for k := range groups {
			w.gangs.Touch(keyOf("scheduler-plugins", fmt.Sprint("g", k)))
			if k == 2 {
				synctest.Wait() // from here on one waits for its turn: the others are touched before any of them is begun
			}
			if k > 2 {
				w.gangs.Touch(keyOf("scheduler-plugins", fmt.Sprint("g", k)))
			}
		}
		for second, want := range []int{2, 4, 6} {
			synctest.Wait()
			assert.EqualValues(t, want, count.Load(), "after %d s", second)
			follow.Pause(t.Context(), time.Second)
		}
		follow.Pause(t.Context(), time.Minute)
		assert.EqualValues(t, len(groups), count.Load())
	})
}

// A right that is missing is told once a minute, with what to do. That the object is gone, or another one, is no
// failure.
func TestTouchFails(t *testing.T) {
	gr := coscheduling.GroupResource()
	tests := map[string]struct {
		err  error
		told string // "" for nothing
	}{
		"forbidden": {
			apierrors.NewForbidden(gr, "g", nil),
			": let this server patch podgroups.scheduling.x-k8s.io, as manifests/base/rbac.yaml",
		},
		"away": {
			errors.New("no answer"),
			"scheduler-plugins gang ns/g could not be annotated, so that its scheduler may leave its pods alone for minutes",
		},
		"gone":    {apierrors.NewNotFound(gr, "g"), ""},
		"another": {apierrors.NewConflict(gr, "g", nil), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, vs(coscheduling), us(group(coscheduling, "g", int64(4))), func(t *testing.T, w *world) {
				require.NoError(t, w.gangs.WaitForSync(t.Context()))
				var tries atomic.Int32
				w.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					tries.Add(1)
					return true, nil, tt.err
				})
				for range 4 {
					w.gangs.Touch(keyOf("scheduler-plugins", "g"))
					follow.Pause(t.Context(), 20*time.Second)
				}
				assert.EqualValues(t, 4, tries.Load(), "each is tried once")
				assert.Zero(t, w.touches("written"))
				if tt.told == "" {
					assert.Zero(t, w.touches("failed"))
					assert.Empty(t, w.log.AllEntries())
					return
				}
				assert.Equal(t, 4, w.touches("failed"))
				require.Len(t, w.log.AllEntries(), 2)
				assert.Contains(t, w.log.LastEntry().Message, tt.told)
			})
		})
	}
}

var coscheduling = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// retry is the annotation of the object g.
func (w *world) retry(of schema.GroupVersionResource) string {
	w.Helper()
	object, err := w.client.Resource(of).Namespace("ns").Get(w.Context(), "g", metav1.GetOptions{})
	require.NoError(w, err)
	return object.GetAnnotations()[v1alpha1.RetryAnnotation]
}

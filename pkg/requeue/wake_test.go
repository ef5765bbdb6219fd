package requeue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/test/bubble"
)

// A server that is new has no refusals, and schedulers do not ask again.
func TestWakeupsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.reserve(w.pod("holder", "2", 0), "a", time.Minute)
		theirs, deleted := w.pod("theirs", "1", 0), w.pod("deleted", "1", 0)
		theirs.Scheduler, deleted.Deleting = "another", true
		w.Host(theirs.Scheduler, makeWorld(t).Pods)
		known := w.pod("refused-again", "1", 0)
		w.refuse(known)
		w.put(w.pod("fits", "1", 0), w.pod("fits-later", "4", 0), w.pod("too-large", "5", 0), theirs, deleted, known)
		advance(time.Minute - time.Second)
		assert.Empty(t, w.api.names(), "not ready")
		close(w.ready)
		synctest.Wait()
		assert.Equal(t, []string{"fits"}, w.api.names())
		w.ledger.Expire(time.Now().Add(time.Second))
		advance(time.Minute)
		assert.ElementsMatch(t, []string{"fits", "fits-later", "refused-again"}, w.api.names())
	})
}

// A pod may be bound while the pods of the start are gone through.
func TestBoundDuringTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		pending, bound := w.pod("p", "1", 0), w.pod("p", "1", 0)
		bound.Node = "a"
		w.put(bound)
		w.seed(slices.Values([]*cluster.Pod{pending, w.pod("gone", "1", 0)}))
		synctest.Wait()
		assert.Empty(t, w.api.names())
		assert.Empty(t, w.byUID)
	})
}

// News of pods in general is passed on to the Pods that wake those of another scheduler, and so is which of them are to
// be tried again.
func TestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, theirs := newWorld(t, "a"), deviceWorld(t)
		w.Host("theirs", theirs.Pods)
		own, hosted := w.pod("own", "1", 0), w.pod("hosted", "1", 0)
		hosted.Scheduler = "theirs"
		w.Wake(own)
		w.Wake(hosted)
		synctest.Wait()
		assert.Equal(t, []string{"own"}, w.api.names())
		assert.Equal(t, []string{"hosted"}, theirs.api.names())
		theirs.Question.Devices = func(*cluster.Pod) *ledger.DeviceRequest {
			return &ledger.DeviceRequest{Err: "there is no claim"}
		}
		theirs.refuse(theirs.claimant("claims", "c"), "a", "b")
		advance(time.Minute)
		theirs.Question.Devices = placementtest.Claims
		w.DeviceClaimChanged("default", "c")
		synctest.Wait()
		assert.Equal(t, []string{"hosted", "claims"}, theirs.api.names())
		theirs.keep("a", 3000)
		theirs.refuse(theirs.pod("matched", "3", 0), "a", "b")
		advance(time.Minute)
		theirs.match("matched")
		w.Matched("default")
		synctest.Wait()
		assert.Equal(t, []string{"hosted", "claims", "matched"}, theirs.api.names())
	})
}

func TestWakeupsAfterRestartAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		var pods []*cluster.Pod
		for i := range wakeupBurst + 2*wakeupsPerSecond {
			pods = append(pods, w.pod(fmt.Sprint("p", i), "1m", 0))
		}
		w.put(pods...)
		close(w.ready)
		advance(time.Second)
		assert.Len(t, w.api.names(), wakeupBurst+wakeupsPerSecond)
		advance(time.Second)
		assert.Len(t, w.api.names(), len(pods))
	})
}

// Capacity that is freed while a pod is being woken must not be forgotten if that fails.
func TestFreedWhileWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		first, second := w.pod("first", "4", 0), w.pod("second", "4", 0)
		w.reserve(first, "a", time.Hour)
		w.reserve(second, "b", time.Hour)
		w.refuse(w.pod("waiting", "4", 0))
		failing := true
		w.api.answer = func(context.Context, ledger.PodRef) error {
			if !failing {
				return nil
			}
			failing = false
			w.reserve(first, "a", time.Hour) // it is gone again
			w.unreserve(second, "b")
			<-time.After(time.Second) // the loop sees it before the patch has failed
			return errors.New("connection lost")
		}
		w.unreserve(first, "a")
		advance(time.Minute)
		assert.Equal(t, []string{"waiting"}, w.api.names())
	})
}

// TestFailuresBackOff has patches fail while the ledger changes a hundred times a second.
func TestFailuresBackOff(t *testing.T) {
	status := func(code int) error {
		return fmt.Errorf("annotating: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code)}})
	}
	type testCase struct {
		err   error
		tries int64 // within 10 s
	}
	cases := map[string]testCase{
		"forbidden":         {status(http.StatusForbidden), 1},
		"invalid":           {status(http.StatusUnprocessableEntity), 1},
		"too many requests": {status(http.StatusTooManyRequests), 4}, // at 0, 1, 3 and 7 s
		"internal error":    {status(http.StatusInternalServerError), 4},
		"connection lost":   {errors.New("connection lost"), 4},
	}
	bubble.Each(t, cases, func(t *testing.T, tc testCase) {
		w := newWorld(t, "a")
		holder := w.pod("holder", "3", 0)
		w.reserve(holder, "a", time.Hour)
		w.refuse(w.pod("denied", "1", 0), "a")
		var tries atomic.Int64
		w.api.answer = func(context.Context, ledger.PodRef) error {
			tries.Add(1)
			return tc.err
		}
		w.unreserve(holder, "a")
		for i := range 1000 {
			churn := w.pod(fmt.Sprint("churn", i), "1", 0)
			w.reserve(churn, "a", time.Hour)
			w.unreserve(churn, "a")
			advance(10 * time.Millisecond)
		}
		assert.Equal(t, tc.tries, tries.Load())
	})
}

// Patches that hang do not hold others.
func TestHangingPatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.api.answer = func(ctx context.Context, pod ledger.PodRef) error {
			if strings.HasPrefix(pod.Name, "hangs") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		holder := w.pod("holder", "4", 0)
		w.reserve(holder, "a", time.Hour)
		for i := range 10 {
			w.refuse(w.pod(fmt.Sprint("hangs", i), "100m", 100))
		}
		w.refuse(w.pod("waiting", "1", 0))
		w.unreserve(holder, "a")
		advance(patchTimeout)
		assert.Equal(t, []string{"waiting"}, w.api.names())
	})
}

// A pod that can run on a few nodes is not woken each time capacity is freed elsewhere, and never overlooks its own.
func TestCapacityOnOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		holder, churn := w.pod("holder", "4", 0), w.pod("churn", "1", 0)
		w.reserve(holder, "a", 100*time.Hour)
		bound, anywhere := w.pod("bound-to-a", "1", 0), w.pod("anywhere", "1", 0)
		w.refuse(bound, "a")
		w.api.answer = func(_ context.Context, pod ledger.PodRef) error {
			if pod == bound.Ref { // its scheduler tries it and is refused again
				w.refuse(bound, "a")
			}
			return nil
		}
		for range 600 {
			w.reserve(churn, "b", time.Hour)
			w.unreserve(churn, "b")
			advance(100 * time.Millisecond)
		}
		strays := len(w.api.names())
		assert.LessOrEqual(t, strays, 7, "at 0, 1, 3, 7, 15, 31 and 61 s")
		assert.GreaterOrEqual(t, strays, 5, "it may have been offered too few")
		w.refuse(anywhere)
		w.reserve(churn, "b", time.Hour)
		w.unreserve(churn, "b")
		synctest.Wait()
		assert.Equal(t, "anywhere", w.api.names()[strays])
		w.unreserve(holder, "a")
		synctest.Wait()
		assert.Equal(t, "bound-to-a", w.api.names()[strays+1])
	})
}

// A pause outlives the news that it holds back.
func TestPausedPodIsWokenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		churn, waiting := w.pod("churn", "1", 0), w.pod("waiting", "4", 0)
		for range 3 { // the pod could have run on b all the time
			w.reserve(churn, "b", time.Hour)
			w.refuse(waiting, "a")
			w.unreserve(churn, "b")
			synctest.Wait()
		}
		assert.Len(t, w.api.names(), 1)
		advance(firstPause)
		assert.Len(t, w.api.names(), 2)
	})
}

// A pod that is sent to free capacity is woken by that, any other one by a patch.
func TestSentPodsAreNotPatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLargeWorld(t, "a")
		holder := w.pod("holder", "4", 0)
		w.reserve(holder, "a", time.Hour)
		w.refuse(w.pod("sent", "1", 0), sample()...)
		w.refuse(w.pod("patched", "1", 0), "a", "b")
		w.unreserve(holder, "a")
		advance(time.Second)
		w.expect([]string{"sent -> a"})
		assert.Equal(t, []string{"patched"}, w.api.patched())
		assert.Equal(t, 2, w.count())
	})
}

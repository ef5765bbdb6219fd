package informer

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/test/background"
)

// pulsed begins watches by a Pulse, as a reflector does.
type pulsed struct {
	Pulse
	asked  []metav1.ListOptions
	server *watch.RaceFreeFakeWatcher // of the newest watch
}

func (p *pulsed) begin(t *testing.T, o metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := p.Watch(t.Context(), o, func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
		p.asked = append(p.asked, o)
		p.server = watch.NewRaceFreeFake()
		return p.server, nil
	})
	require.NoError(t, err)
	return w
}

func (p *pulsed) timeouts() (seconds []int64) {
	for _, o := range p.asked {
		seconds = append(seconds, ptr.Deref(o.TimeoutSeconds, 0))
	}
	return seconds
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		assert.Zero(t, p.Age(), "nothing was ever heard")
		w := p.begin(t, metav1.ListOptions{})
		defer w.Stop()
		p.server.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		event := <-w.ResultChan()
		assert.Equal(t, "a", event.Object.(*v1.Pod).Name)
		<-time.After(20 * time.Second)
		assert.Equal(t, 20*time.Second, p.Age())
		p.server.Action(watch.Bookmark, &v1.Pod{})
		<-w.ResultChan()
		assert.Zero(t, p.Age())
		<-time.After(time.Second)
		p.server.Error(&metav1.Status{})
		<-w.ResultChan()
		assert.Equal(t, time.Second, p.Age(), "an error is no news of the objects")

		p.server.Stop()
		_, open := <-w.ResultChan()
		assert.False(t, open, "it ends with the API server's")
	})
}

// What comes is decoded while the reader is busy with what came before.
func TestWatchReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		w := p.begin(t, metav1.ListOptions{})
		defer w.Stop()
		for i := range ahead {
			p.server.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
		}
		synctest.Wait()
		assert.Empty(t, p.server.ResultChan(), "all are taken from the one who decodes")
		for i := range ahead {
			assert.Equal(t, strconv.Itoa(i), (<-w.ResultChan()).Object.(*v1.Pod).Name)
		}
	})
}

// A watch whose reader stops with events unread holds nothing: the bubble would not end.
func TestWatchIsLeftUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		w := p.begin(t, metav1.ListOptions{})
		for range ahead + 2 {
			p.server.Add(&v1.Pod{})
		}
		synctest.Wait()
		w.Stop()
		w.Stop()
	})
}

func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		yes := true
		begun := time.Now()
		first := p.begin(t, metav1.ListOptions{})
		p.Hurry(t.Context())
		_, open := <-first.ResultChan()
		assert.False(t, open)
		assert.Equal(t, time.Second, time.Since(begun), "a reflector lists everything after a watch that was shorter")

		p.begin(t, metav1.ListOptions{}).Stop()
		p.begin(t, metav1.ListOptions{}).Stop()
		assert.Equal(t, []int64{0, 3, 0}, p.timeouts(), "only the next one is short")

		last := p.begin(t, metav1.ListOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.Hurry(ctx)
		synctest.Wait()
		select {
		case <-last.ResultChan():
			t.Error("who hurried has given up, and the watch ended")
		default:
		}
		last.Stop()
		p.begin(t, metav1.ListOptions{SendInitialEvents: &yes}).Stop()
		assert.Zero(t, p.timeouts()[4], "a list that is streamed may take longer")
	})
}

// Who hurries while a watch is about to begin has it end, too: it may have been asked for before.
func TestHurryWhileAWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		begin := func(o metav1.ListOptions) watch.Interface {
			w, err := p.Watch(t.Context(), o, func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				p.Hurry(t.Context())
				return watch.NewRaceFreeFake(), nil
			})
			require.NoError(t, err)
			return w
		}
		begun := time.Now()
		_, open := <-begin(metav1.ListOptions{}).ResultChan()
		assert.False(t, open)
		assert.Equal(t, shortWatch, time.Since(begun))

		list := begin(metav1.ListOptions{SendInitialEvents: ptr.To(true)})
		defer list.Stop()
		<-time.After(2 * shortWatch)
		select {
		case <-list.ResultChan():
			t.Error("it would have to begin again")
		default:
		}
		p.begin(t, metav1.ListOptions{}).Stop()
		assert.Equal(t, []int64{3}, p.timeouts(), "the next one is short")
	})
}

func TestSilentWatchIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		p.Heard()
		w := p.begin(t, metav1.ListOptions{})
		defer background.Run(t, func(ctx context.Context) error { p.Run(ctx); return nil })()
		<-time.After(50 * time.Second)
		p.server.Action(watch.Bookmark, &v1.Pod{})
		<-w.ResultChan()
		<-time.After(quiet - time.Second)
		select {
		case <-w.ResultChan():
			t.Fatal("it is not silent for long")
		default:
		}
		_, open := <-w.ResultChan()
		assert.False(t, open)
		assert.Equal(t, quiet, p.Age())
		p.begin(t, metav1.ListOptions{}).Stop()
		assert.Equal(t, []int64{0, 3}, p.timeouts())
	})
}

// Whoever is in a hurry would have the full state sent again and again, where that takes long; but a connection may be
// dead.
func TestHurryDoesNotEndAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulsed{}
		w := p.begin(t, metav1.ListOptions{SendInitialEvents: ptr.To(true)})
		ended := func() bool {
			synctest.Wait()
			select {
			case <-w.(*heardWatch).stopped:
				return true
			default:
				return false
			}
		}
		<-time.After(4 * time.Second)
		p.Hurry(t.Context())
		require.False(t, ended())
		p.server.Action(watch.Bookmark, &v1.Pod{})
		<-w.ResultChan()
		p.Hurry(t.Context())
		require.True(t, ended(), "the state is sent")

		w = p.begin(t, metav1.ListOptions{SendInitialEvents: ptr.To(true)})
		defer background.Run(t, func(ctx context.Context) error {
			p.Run(ctx)
			return nil
		})()
		<-time.After(quiet + time.Second)
		require.True(t, ended(), "nothing comes")
	})
}

func TestAListWithoutALimitIsLeftAsItIs(t *testing.T) {
	o := metav1.ListOptions{ResourceVersion: "7"}
	assert.Equal(t, o, consistent(o))
}

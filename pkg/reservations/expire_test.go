package reservations

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/placement/placementtest"
	"github.com/globalreserve/globalreserve/pkg/steady"
	"github.com/globalreserve/globalreserve/test/background"
)

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(ledger.Options{})
		placementtest.Nodes(l, 4000, "a")
		log, _ := logtest.NewNullLogger()
		defer background.Run(t, func(ctx context.Context) error {
			return Expire(ctx, l.Observer(), steady.New(time.Now, steady.Uptime), log)
		})()
		reserve := func(name string, ttl time.Duration) {
			placement := ledger.Placement{
				Pod: ledger.PodRef{Namespace: "ns", Name: name, UID: types.UID(name)}, Node: "a",
				Request: placementtest.Request(1000),
			}
			plan := ledger.NewPlan([]ledger.Placement{placement}, ledger.AllOrNothing, time.Now().Add(ttl))
			require.Equal(t, 1, l.Reserve(plan, time.Now()).Granted)
		}
		advance := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		expired := func() uint64 { return l.Stats().InMemoryExpired }
		reserve("one", 10*time.Second)
		reserve("two", 5*time.Second) // sooner than the one waited for
		reserve("three", time.Hour)
		advance(5*time.Second - time.Nanosecond)
		assert.EqualValues(t, 0, expired())
		advance(time.Nanosecond)
		assert.EqualValues(t, 1, expired())
		advance(5 * time.Second)
		assert.EqualValues(t, 2, expired())
		assert.Equal(t, 1, l.Stats().InMemory)
	})
}

package deviceclaims

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/follow"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

func gpuClaim(name string, count int32) *v1alpha1.ExtendedResourceClaim {
	return &v1alpha1.ExtendedResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Generation: 1},
		Spec:       v1alpha1.ExtendedResourceClaimSpec{ResourceName: "nvidia.com/gpu", Count: count},
	}
}

// TestReader follows claims of a cluster that gets to know the kind late.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleClientset(gpuClaim("c", 2))
		var served atomic.Bool
		serve(client, &served)
		log, _ := logtest.NewNullLogger()
		var mu sync.Mutex
		var told []string
		definitions := follow.NewDefinitions(client.Discovery(), v1alpha1.SchemeGroupVersion, log)
		r := NewReader(client, definitions.Kind("extendedresourceclaims"), func(_, name string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, name)
		}, log)
		changes := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			list := told
			told = nil
			return list
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = definitions.Run(ctx) })
		running.Go(func() { _ = r.Run(ctx) })
		pod := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns", Name: "p"}, Devices: &cluster.DeviceAnnotations{Claims: []string{"c"}}}
		assert.Empty(t, changes())
		assert.Contains(t, r.Devices(pod).Err, "install manifests/crd")
		assert.Nil(t, r.Devices(&cluster.Pod{}), "it claims nothing")

		served.Store(true)
		<-time.After(noticed)
		assert.Equal(t, []string{"c"}, changes())
		asked := r.Devices(pod)
		require.Empty(t, asked.Err)
		assert.Equal(t, []ledger.DeviceClaimRef{{Namespace: "ns", Name: "c", UID: "uid-of-c"}}, asked.Claims)
		assert.Equal(t, 2, asked.Requests[0].Count())

		claims := client.GlobalreserveV1alpha1().ExtendedResourceClaims("ns")
		bound := gpuClaim("c", 2)
		bound.Status.Phase = v1alpha1.ExtendedResourceClaimBound
		_, err := claims.UpdateStatus(ctx, bound, metav1.UpdateOptions{})
		require.NoError(t, err)
		assert.Empty(t, changes(), "a status is no news")
		require.NoError(t, claims.Delete(ctx, "c", metav1.DeleteOptions{}))
		assert.Equal(t, []string{"c"}, changes())
		assert.Contains(t, r.Devices(pod).Err, "there is no ExtendedResourceClaim c in namespace ns")
		_, err = claims.Create(ctx, gpuClaim("d", 1), metav1.CreateOptions{})
		require.NoError(t, err)
		assert.Equal(t, []string{"d"}, changes())
		served.Store(false)
		<-time.After(noticed)
		assert.Equal(t, []string{"d"}, changes(), "it went with the definition")
		assert.Contains(t, r.Devices(pod).Err, "install manifests/crd")
		served.Store(true)
		<-time.After(noticed)
		assert.Equal(t, []string{"d"}, changes())
		cancel()
		running.Wait()
	})
}

// noticed is how soon it has to be noticed that the definitions came or went.
const noticed = 30 * time.Second

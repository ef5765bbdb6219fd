package deviceclaims

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/fake"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/podinfo"
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
		client.Resources = []*metav1.APIResourceList{{
			GroupVersion: v1alpha1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{{Name: "extendedresourceclaims"}},
		}}
		client.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
			if served.Load() {
				return false, nil, nil
			}
			return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "globalreserve.io")
		})
		log, _ := logtest.NewNullLogger()
		var mu sync.Mutex
		var told []string
		r := NewReader(client, func(_, name string) {
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
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Run(ctx)
		}()
		pod := &podinfo.Info{Ref: ledger.PodRef{Namespace: "ns", Name: "p"}, Devices: &podinfo.DeviceMarks{Claims: []string{"c"}}}
		assert.Empty(t, changes())
		assert.Contains(t, r.Devices(pod).Err, "install manifests/crd")
		assert.Nil(t, r.Devices(&podinfo.Info{}), "it claims nothing")

		served.Store(true)
		pause(ctx, discoverEvery)
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
		cancel()
		<-done
	})
}

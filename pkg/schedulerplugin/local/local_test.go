package local

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

func TestServerOptions(t *testing.T) {
	assert.Equal(t, app.DefaultOptions(), serverOptions(&schedulerplugin.Args{}), "what is left out is as for the server")

	got := serverOptions(&schedulerplugin.Args{
		IgnoredResources: []v1.ResourceName{"example.com/gpu"},
		Server: schedulerplugin.ServerArgs{
			BindAddress: "::1", Port: ptr.To(0), AllowInsecureHTTP: true, ReservationTTL: metav1.Duration{Duration: time.Second},
			BindTimeout: metav1.Duration{Duration: 2 * time.Second}, PolicyFile: "policy", LogLevel: "debug", LogFormat: "json",
			TLSCertFile: "cert", TLSPrivateKeyFile: "key", SecureBindAddress: "127.0.0.1", SecurePort: ptr.To(1),
			ClientCAFile: "ca", AdmissionClientNames: []string{"api"},
		},
	})
	want := app.DefaultOptions()
	want.BindAddress, want.Port, want.AllowInsecureHTTP, want.ReservationTTL = "::1", 0, true, time.Second
	want.BindTimeout, want.PolicyFile, want.LogLevel, want.LogFormat = 2*time.Second, "policy", "debug", "json"
	want.Secure = app.SecureOptions{
		CertFile: "cert", KeyFile: "key", BindAddress: "127.0.0.1", Port: 1, ClientCAFile: "ca", AdmissionClients: []string{"api"},
	}
	want.IgnoredResources = []string{"example.com/gpu"}
	assert.Equal(t, want, got)
}

// lease reads the Lease.
func lease(t *testing.T, client kubernetes.Interface) coordinationv1.LeaseSpec {
	t.Helper()
	l, err := client.CoordinationV1().Leases("kube-system").Get(context.Background(), leaseName, metav1.GetOptions{})
	require.NoError(t, err)
	return l.Spec
}

func TestLockIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		l, err := newLock(client, &schedulerplugin.ServerArgs{})
		require.NoError(t, err)
		host, err := os.Hostname()
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		serving := make(chan struct{})
		lost := make(chan bool)
		go func() {
			lost <- l.run(ctx, func(ctx context.Context) {
				close(serving)
				<-ctx.Done()
			})
		}()
		<-serving
		assert.Equal(t, host, *lease(t, client).HolderIdentity)
		cancel()
		assert.False(t, <-lost, "it was given up, not lost")
		assert.Empty(t, ptr.Deref(lease(t, client).HolderIdentity, ""), "another process has it at once")
	})
}

// While somebody else holds the Lease and renews it, nothing is served.
func TestLockOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		now := metav1.NowMicro()
		_, err := client.CoordinationV1().Leases("kube-system").Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: leaseName},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &now, AcquireTime: &now,
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		l, err := newLock(client, &schedulerplugin.ServerArgs{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		assert.False(t, l.run(ctx, func(context.Context) { t.Error("two would decide") }))
		assert.Equal(t, "another", *lease(t, client).HolderIdentity)
	})
}

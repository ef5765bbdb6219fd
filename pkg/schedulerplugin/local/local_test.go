package local

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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
		l, err := newLock(client, &schedulerplugin.ServerArgs{}, quiet())
		require.NoError(t, err)
		host, err := os.Hostname()
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		serving := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run(ctx, func(ctx context.Context) {
				close(serving)
				<-ctx.Done()
			}, func() { t.Error("it was given up, not lost") })
		}()
		<-serving
		assert.Equal(t, host+"_23456", *lease(t, client).HolderIdentity)
		assert.True(t, l.held())
		cancel()
		<-ended
		assert.False(t, l.held())
		assert.Empty(t, ptr.Deref(lease(t, client).HolderIdentity, ""), "another process has it at once")
	})
}

// quiet is a log nobody reads.
func quiet() logrus.FieldLogger {
	log, _ := logtest.NewNullLogger()
	return log
}

// A lease that cannot be renewed is lost before another process can have it, and that is told while
// the server still has something under way.
func TestLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var away atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("the API server is away")
		})
		l, err := newLock(client, &schedulerplugin.ServerArgs{}, quiet())
		require.NoError(t, err)
		serving, finish, lost := make(chan struct{}), make(chan struct{}), make(chan time.Time, 1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run(t.Context(), func(context.Context) {
				close(serving)
				<-finish
			}, func() { lost <- time.Now() })
		}()
		<-serving
		<-time.After(time.Minute)
		assert.True(t, l.held(), "it is renewed")
		away.Store(true)
		renewed := lease(t, client).RenewTime.Time
		at := <-lost
		assert.Less(t, at.Sub(renewed), leaseDuration, "another process has it from then on")
		<-time.After(leaseDuration - time.Since(renewed))
		assert.False(t, l.held(), "nothing is decided any more")
		close(finish)
		<-ended
		assert.NotEmpty(t, *lease(t, client).HolderIdentity, "it was not released: what was under way may be carried out yet")
	})
}

// A process that was suspended, and goes on as if nothing had happened, knows that the lease is over.
func TestLockOfASuspendedProcess(t *testing.T) {
	client := fake.NewClientset()
	l, err := newLock(client, &schedulerplugin.ServerArgs{}, quiet())
	require.NoError(t, err)
	assert.False(t, l.held())
	require.NoError(t, l.lease.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: l.lease.Identity()}))
	assert.True(t, l.held())
	before := time.Now().Add(-surelyHeld)
	l.lease.renewed.Store(&before)
	assert.False(t, l.held())
}

// Two on one host, with different ports, are two.
func TestLocksOfOneHost(t *testing.T) {
	one, err := newLock(fake.NewClientset(), &schedulerplugin.ServerArgs{}, quiet())
	require.NoError(t, err)
	other, err := newLock(fake.NewClientset(), &schedulerplugin.ServerArgs{Port: ptr.To(23460)}, quiet())
	require.NoError(t, err)
	assert.NotEqual(t, one.lease.Identity(), other.lease.Identity())
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
		l, err := newLock(client, &schedulerplugin.ServerArgs{}, quiet())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		l.run(ctx, func(context.Context) { t.Error("two would decide") }, func() { t.Error("it was never held") })
		assert.False(t, l.held())
		assert.Equal(t, "another", *lease(t, client).HolderIdentity)
	})
}

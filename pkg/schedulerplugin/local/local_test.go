package local

import (
	"io"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/cluster"
	"github.com/globalreserve/globalreserve/pkg/election"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
	"github.com/globalreserve/globalreserve/pkg/waiting"
)

func TestServerOptions(t *testing.T) {
	assert.Equal(t, app.DefaultOptions(), serverOptions(&schedulerplugin.Args{}), "what is left out is as for the server")

	got := serverOptions(&schedulerplugin.Args{
		IgnoredResources: []v1.ResourceName{"example.com/gpu"},
		Server: schedulerplugin.ServerArgs{
			BindAddress: ptr.To(""), Port: ptr.To(0), AllowInsecureHTTP: true,
			ReservationTTL: metav1.Duration{Duration: time.Second},
			BindTimeout:    metav1.Duration{Duration: 2 * time.Second}, PolicyFile: "policy", LogLevel: "debug",
			LogFormat:   "json",
			TLSCertFile: "cert", TLSPrivateKeyFile: "key", SecureBindAddress: "127.0.0.1", SecurePort: ptr.To(1),
			ClientCAFile: "ca", AdmissionClientNames: []string{"api"}, AdmissionWarn: true, HealthAddress: ":1",
			LeaseNamespace: "here", LeaseDuration: metav1.Duration{Duration: 4 * time.Second},
			LeaseRenewDeadline: metav1.Duration{Duration: 3 * time.Second},
			LeaseRetryPeriod:   metav1.Duration{Duration: time.Second},
		},
	})
	want := app.DefaultOptions()
	want.BindAddress, want.Port, want.AllowInsecureHTTP, want.ReservationTTL = "", 0, true, time.Second
	want.HealthAddress = ":1"
	want.BindTimeout, want.PolicyFile, want.LogLevel, want.LogFormat = 2*time.Second, "policy", "debug", "json"
	want.Secure = app.SecureOptions{
		CertFile: "cert", KeyFile: "key", BindAddress: "127.0.0.1", Port: 1, ClientCAFile: "ca",
		AdmissionClients: []string{"api"}, AdmissionWarn: true,
	}
	want.Election.Namespace, want.Election.Times = "here", election.Times{
		Lease: 4 * time.Second, Renew: 3 * time.Second,
		Retry: time.Second,
	}
	want.IgnoredResources = []string{"example.com/gpu"}
	assert.Equal(t, want, got)
}

// The pods of a profile are left to the plugin by the server.
func TestHost(t *testing.T) {
	clients, err := app.NewClients(&rest.Config{Host: "http://127.0.0.1:1"})
	require.NoError(t, err)
	server, err := app.New(serverOptions(&schedulerplugin.Args{}), clients, io.Discard)
	require.NoError(t, err)
	log, _ := logtest.NewNullLogger()
	b := &backend{app: server}
	theirs := waiting.New(waiting.Options{Ledger: b.Ledger(), Question: b.Question(), Log: log})
	b.Host("profile", theirs)
	pod := &cluster.Pod{Ref: ledger.PodRef{Namespace: "ns", Name: "p", UID: "u"}, Scheduler: "profile", Caller: "somebody"}
	server.Waiting().Wake(pod)
	assert.Equal(t, "somebody", theirs.LastCaller("u"))
	assert.Empty(t, server.Waiting().LastCaller("u"))
}

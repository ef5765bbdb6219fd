package schedulerplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/election"
)

func TestServerOptions(t *testing.T) {
	assert.Equal(t, app.DefaultOptions(), serverOptions(&Args{}), "what is left out is as for the server")

	got := serverOptions(&Args{
		IgnoredResources: []v1.ResourceName{"example.com/gpu"},
		Server: ServerArgs{
			BindAddress: ptr.To(""), Port: ptr.To(0), AllowInsecureHTTP: true,
			ReservationTTL: metav1.Duration{Duration: time.Second},
			BindTimeout:    metav1.Duration{Duration: 2 * time.Second}, PolicyFile: "policy", LogLevel: "debug",
			LogFormat:   "json",
			TLSCertFile: "cert", TLSPrivateKeyFile: "key", SecureBindAddress: "127.0.0.1", SecurePort: ptr.To(1),
			ClientCAFile: "ca", AdmissionClientNames: []string{"api"}, AdmissionWarn: true, HealthAddress: ":1",
			UIAddress: "127.0.0.1:2", HostNames: []string{"host"},
			LeaseNamespace: "here", LeaseDuration: metav1.Duration{Duration: 4 * time.Second},
			LeaseRenewDeadline: metav1.Duration{Duration: 3 * time.Second},
			LeaseRetryPeriod:   metav1.Duration{Duration: time.Second},
		},
	})
	want := app.DefaultOptions()
	want.BindAddress, want.Port, want.AllowInsecureHTTP, want.ReservationTTL = "", 0, true, time.Second
	want.HealthAddress, want.UIAddress, want.HostNames = ":1", "127.0.0.1:2", []string{"host"}
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

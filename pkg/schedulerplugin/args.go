package schedulerplugin

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
)

// Args is the plugin's section of the scheduler's configuration.
type Args struct {
	// ReservationTTL is how long capacity is kept for a pod between Reserve and Bind if
	// the scheduler dies. Default 60s.
	ReservationTTL metav1.Duration `json:"reservationTTL"`

	// IgnoredResources are extended resources the ledger does not count, as the server's
	// --ignored-resources.
	IgnoredResources []v1.ResourceName `json:"ignoredResources"`

	// Server configures the server in the scheduler.
	Server ServerArgs `json:"server"`
}

// ServerArgs are the server's options: what the flags of the same names are to the
// globalreserve binary. What is left out has the same default as there.
type ServerArgs struct {
	// BindAddress is a pointer because an empty one means something: no plain HTTP.
	BindAddress       *string         `json:"bindAddress,omitempty"`
	Port              *int            `json:"port,omitempty"`
	AllowInsecureHTTP bool            `json:"allowInsecureHTTP,omitempty"`
	HealthAddress     string          `json:"healthAddress,omitempty"`
	UIAddress         string          `json:"uiAddress,omitempty"`
	HostNames         []string        `json:"hostNames,omitempty"`
	ReservationTTL    metav1.Duration `json:"reservationTTL,omitzero"`
	BindTimeout       metav1.Duration `json:"bindTimeout,omitzero"`
	PolicyFile        string          `json:"policyFile,omitempty"`
	PeerAddress       string          `json:"peerAddress,omitempty"`
	PeerAdvertiseURL  string          `json:"peerAdvertiseURL,omitempty"`
	LogLevel          string          `json:"logLevel,omitempty"`
	LogFormat         string          `json:"logFormat,omitempty"`
	// LeaseNamespace is where the Lease "globalreserve" is, which the process with the
	// ledger holds. Default kube-system.
	LeaseNamespace string `json:"leaseNamespace,omitempty"`
	// LeaseDuration, LeaseRenewDeadline and LeaseRetryPeriod are the flags --leader-elect-lease-duration,
	// -renew-deadline and -retry-period.
	LeaseDuration      metav1.Duration `json:"leaseDuration,omitzero"`
	LeaseRenewDeadline metav1.Duration `json:"leaseRenewDeadline,omitzero"`
	LeaseRetryPeriod   metav1.Duration `json:"leaseRetryPeriod,omitzero"`

	TLSCertFile          string   `json:"tlsCertFile,omitempty"`
	TLSPrivateKeyFile    string   `json:"tlsPrivateKeyFile,omitempty"`
	SecureBindAddress    string   `json:"secureBindAddress,omitempty"`
	SecurePort           *int     `json:"securePort,omitempty"`
	ClientCAFile         string   `json:"clientCAFile,omitempty"`
	AdmissionClientNames []string `json:"admissionClientNames,omitempty"`
	AdmissionWarn        bool     `json:"admissionWarn,omitempty"`
}

// defaultTTL is how long capacity is kept that a scheduler which died had reserved.
const defaultTTL = 60 * time.Second

// ReadArgs reads the plugin's section of the configuration. Unknown fields are errors.
func ReadArgs(section runtime.Object) (*Args, error) {
	args := &Args{ReservationTTL: metav1.Duration{Duration: defaultTTL}}
	var raw []byte
	switch s := section.(type) {
	case nil:
	case *runtime.Unknown:
		raw = s.Raw
	default:
		return nil, fmt.Errorf("the plugin's args are a %T; give them as a mapping under pluginConfig", section)
	}
	if len(raw) > 0 {
		strict, err := json.UnmarshalStrict(raw, args)
		if err = errors.Join(append(strict, err)...); err != nil {
			return nil, fmt.Errorf("the args of plugin %s cannot be read: %w", Name, err)
		}
	}
	if ttl := args.ReservationTTL.Duration; ttl < time.Second {
		return nil, fmt.Errorf("the args of plugin %s are wrong: reservationTTL %s is too short; give 1s or more", Name, ttl)
	}
	return args, nil
}

package schedulerplugin

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
)

// Mode says where the ledger is.
type Mode string

// The modes of the plugin.
const (
	// Local: in the scheduler's own process, which serves everybody else.
	Local Mode = "local"
	// Remote: in a server, of which the scheduler keeps a mirror.
	Remote Mode = "remote"
)

// FailurePolicy says what becomes of pods while the server is away, or the mirror is
// behind.
type FailurePolicy string

// The failure policies.
const (
	// Fail: pods wait, and are tried again as soon as the server is back.
	Fail FailurePolicy = "Fail"
	// Ignore: pods are scheduled and bound as if there were no GlobalReserve. Nodes
	// may get overcommitted then.
	Ignore FailurePolicy = "Ignore"
)

// Args is the plugin's section of the scheduler's configuration.
type Args struct {
	// Mode has to be given: a ledger of its own is not what a second scheduler wants.
	Mode Mode `json:"mode"`
	// ReservationTTL is how long capacity is kept for a pod between Reserve and Bind if
	// the scheduler dies. Default 60s.
	ReservationTTL metav1.Duration `json:"reservationTTL"`

	// IgnoredResources are extended resources the ledger does not count, as the server's
	// --ignored-resources. In mode remote they have to be the server's.
	IgnoredResources []v1.ResourceName `json:"ignoredResources"`

	// RemoteURL is the server's address in mode remote, such as
	// https://globalreserve.globalreserve-system.svc:443.
	RemoteURL string `json:"remoteURL"`
	// FailurePolicy is Fail or Ignore, in mode remote. Default Fail.
	FailurePolicy FailurePolicy `json:"failurePolicy"`
	// CAFile, CertFile and KeyFile are paths of PEM files for TLS with the server;
	// the client's own certificate is what the server knows its callers by.
	CAFile   string `json:"caFile"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// TokenFile is the path of a token of the cluster, which a pod has in
	// /var/run/secrets/kubernetes.io/serviceaccount/token; instead of a certificate.
	TokenFile string `json:"tokenFile"`

	// Server configures what is served in mode local.
	Server ServerArgs `json:"server"`
}

// ServerArgs are the server's options in mode local: what the flags of the same names
// are to the globalreserve binary. What is left out has the same default as there.
type ServerArgs struct {
	// BindAddress is a pointer because an empty one means something: no plain HTTP.
	BindAddress       *string         `json:"bindAddress,omitempty"`
	Port              *int            `json:"port,omitempty"`
	AllowInsecureHTTP bool            `json:"allowInsecureHTTP,omitempty"`
	HealthAddress     string          `json:"healthAddress,omitempty"`
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

// ReadArgs reads the plugin's section of the configuration. Unknown fields are
// errors.
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
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("the args of plugin %s are wrong: %w", Name, err)
	}
	return args, nil
}

func (a *Args) validate() error {
	var errs []error
	if a.ReservationTTL.Duration < time.Second {
		errs = append(errs, fmt.Errorf("reservationTTL %s is too short; give 1s or more", a.ReservationTTL.Duration))
	}
	switch a.Mode {
	case Local:
		errs = append(errs, a.validateLocal()...)
	case Remote:
		errs = append(errs, a.validateRemote()...)
	case "":
		errs = append(errs, errors.New(`mode is missing: give "local" for a ledger in this scheduler, or "remote" and remoteURL for that of a server`))
	default:
		errs = append(errs, fmt.Errorf(`mode %q is unknown: give "local" or "remote"`, a.Mode))
	}
	return errors.Join(errs...)
}

func (a *Args) validateLocal() (errs []error) {
	for _, f := range []struct{ name, value string }{
		{"remoteURL", a.RemoteURL},
		{"failurePolicy", string(a.FailurePolicy)},
		{"caFile", a.CAFile},
		{"certFile", a.CertFile},
		{"keyFile", a.KeyFile},
		{"tokenFile", a.TokenFile},
	} {
		if f.value != "" {
			errs = append(errs, fmt.Errorf("%s is for mode remote; leave it out", f.name))
		}
	}
	return errs
}

func (a *Args) validateRemote() (errs []error) {
	u, err := url.Parse(a.RemoteURL)
	switch {
	case a.RemoteURL == "":
		errs = append(errs, errors.New("remoteURL is missing: give the server's address, such as http://127.0.0.1:23456"))
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		errs = append(errs, fmt.Errorf("remoteURL %q is not the address of a server; give one such as http://127.0.0.1:23456", a.RemoteURL))
	case u.Scheme == "http" && (a.CAFile != "" || a.CertFile != "" || a.KeyFile != "" || a.TokenFile != ""):
		errs = append(errs, errors.New("caFile, certFile, keyFile and tokenFile need a remoteURL with https"))
	}
	if (a.CertFile == "") != (a.KeyFile == "") {
		errs = append(errs, errors.New("certFile and keyFile belong together; give both or none"))
	}
	switch a.FailurePolicy {
	case "":
		a.FailurePolicy = Fail
	case Fail, Ignore:
	default:
		errs = append(errs, fmt.Errorf("failurePolicy %q is unknown: give Fail or Ignore", a.FailurePolicy))
	}
	if !reflect.ValueOf(a.Server).IsZero() {
		errs = append(errs, errors.New("server is for mode local; leave it out"))
	}
	return errs
}

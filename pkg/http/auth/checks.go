package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// use is the verb, and schedulers the resource, of the right to act for a scheduler. reserve is the verb of the right
// to reserve through the server in a namespace. That right does not let a caller write Reservation objects itself.
const (
	use          = "use"
	schedulers   = "schedulers"
	reserve      = "reserve"
	reservations = "reservations"
	nodes        = "nodes"
)

// Checks finds out who callers are and what they may do. Make one with NewChecks.
type Checks struct {
	client  kubernetes.Interface
	reviews *reviews
	rights  *rights
	log     logrus.FieldLogger
}

// NewChecks returns Checks that ask the API server of a client.
func NewChecks(client kubernetes.Interface, log logrus.FieldLogger) *Checks {
	reviews := newReviews()
	return &Checks{client: client, reviews: reviews, rights: newRights(client.AuthorizationV1(), reviews), log: log}
}

// Refused is how many requests were refused because they would have put too many questions to the API server.
func (c *Checks) Refused() int64 { return c.reviews.refused.Load() }

// DeniedError refuses a caller what it has no right to.
type DeniedError struct{ Message string }

// Error says which right is missing.
func (e *DeniedError) Error() string { return e.Message }

// Status is the HTTP status of a check's error.
func Status(err error) int {
	var denied *DeniedError
	switch {
	case errors.As(err, &denied):
		return http.StatusForbidden
	case errors.Is(err, errTooMany):
		return http.StatusTooManyRequests
	default:
		return http.StatusServiceUnavailable
	}
}

// MayUse says why a caller must not act for a scheduler, nil if it may. The error is a *DeniedError, or says why it is
// not known.
func (c *Checks) MayUse(ctx context.Context, caller user.Info, scheduler string) error {
	return c.may(ctx, caller, &authorizationv1.ResourceAttributes{
		Verb: use, Group: v1alpha1.GroupName, Version: "*", Resource: schedulers, Name: scheduler,
	})
}

// MayReserve says why a caller must not reserve in a namespace, or in all where that is empty; nil if it may. The error
// is that of MayUse.
func (c *Checks) MayReserve(ctx context.Context, caller user.Info, namespace string) error {
	return c.may(ctx, caller, &authorizationv1.ResourceAttributes{
		Verb: reserve, Group: v1alpha1.GroupName, Version: "*", Resource: reservations, Namespace: namespace,
	})
}

// MayRead says why a caller must not see the names of pods and reservations of a namespace, or of all where that is
// empty; nil if it may. The error is that of MayUse.
func (c *Checks) MayRead(ctx context.Context, caller user.Info, namespace string) error {
	return c.may(ctx, caller, &authorizationv1.ResourceAttributes{
		Verb: "list", Version: "v1", Resource: "pods", Namespace: namespace,
	})
}

// MayDrain says why a caller must not plan where the pods of nodes go, nil if it may: it is for those who may cordon
// nodes. The error is that of MayUse.
func (c *Checks) MayDrain(ctx context.Context, caller user.Info) error {
	return c.may(ctx, caller, &authorizationv1.ResourceAttributes{Verb: "patch", Version: "v1", Resource: nodes})
}

func (c *Checks) may(ctx context.Context, caller user.Info, right *authorizationv1.ResourceAttributes) error {
	return c.check(ctx, caller, &authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: right})
}

func (c *Checks) mayAsk(r *http.Request, caller user.Info) error {
	return c.check(r.Context(), caller, &authorizationv1.SubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: strings.ToLower(r.Method), Path: r.URL.Path},
	})
}

func (c *Checks) check(ctx context.Context, caller user.Info, right *authorizationv1.SubjectAccessReviewSpec) error {
	if Trusted(caller) {
		return nil
	}
	allowed, err := c.rights.may(ctx, caller, right)
	switch {
	case errors.Is(err, errTooMany):
		return errTooMany
	case err != nil:
		c.log.WithError(err).WithField("caller", caller.GetName()).Warn("it is not known what a caller may do")
		return fmt.Errorf("%w whether %q may %s; try again", ErrUnreachable, caller.GetName(), describe(right))
	case !allowed:
		return &DeniedError{fmt.Sprintf("%q may not %s", caller.GetName(), describe(right))}
	default:
		return nil
	}
}

// describe says what a right is good for, and what gives it.
func describe(right *authorizationv1.SubjectAccessReviewSpec) string {
	if path := right.NonResourceAttributes; path != nil {
		return fmt.Sprintf("%s %s: a role has to give it the verb %s on that nonResourceURL",
			strings.ToUpper(path.Verb), httpjson.Clip(path.Path), path.Verb)
	}
	switch object := right.ResourceAttributes; object.Resource {
	case schedulers:
		return fmt.Sprintf("act for scheduler %q: a role has to give it the verb %s on %s.%s of that name, or the policy "+
			"file has to list it among the scheduler's callers", object.Name, use, schedulers, v1alpha1.GroupName)
	case reservations:
		return fmt.Sprintf("reserve in %s: a role has to give it the verb %s on %s.%s there",
			where(object.Namespace), reserve, reservations, v1alpha1.GroupName)
	case nodes:
		return "plan to drain nodes: a role has to let it patch nodes"
	default:
		return fmt.Sprintf("see pods of %s: a role has to let it list pods there", where(object.Namespace))
	}
}

// where names a namespace, or all.
func where(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return "namespace " + httpjson.Clip(namespace)
}

// Entry is how requests come in over TLS. All fields are required that do not say otherwise.
type Entry struct {
	// ClientCA has the authorities whose client certificates count; nil: none does.
	ClientCA dynamiccertificates.CAContentProvider
	// Open are the paths that everybody may ask for; nil: none.
	Open []string
	// Admission are the paths for the API server alone, nil for none, and AdmissionCallers are its names there.
	// user.Anonymous among them stands for everybody who reaches the port.
	Admission, AdmissionCallers []string
	// Intake refuses a caller that sends too many requests. Unknown callers are distinguished by their address.
	Intake *httpjson.Intake
}

// Outside is for requests of clients over TLS: it finds out who they are, and lets nobody through without the
// right to the path.
func (c *Checks) Outside(e *Entry, next http.Handler) http.Handler {
	var ways []authenticator.Request
	if e.ClientCA != nil {
		ways = append(ways, x509.NewDynamic(e.ClientCA.VerifyOptions, x509.CommonNameUserConversion))
	}
	ways = append(ways, bearertoken.New(newTokens(c.client.AuthenticationV1(), c.reviews)))
	known := group.NewAuthenticatedGroupAdder(union.New(ways...))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strip(r.Header)
		var refused error
		if !slices.Contains(e.Open, r.URL.Path) {
			var caller user.Info
			if caller, refused = c.admit(e, known, r); refused == nil {
				r = with(r, caller)
			}
		}
		if err := e.Intake.Pace(r); err != nil {
			refused = err
		}
		if refused != nil {
			httpjson.WriteError(w, refused)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit returns who sent a request that may be answered.
func (c *Checks) admit(e *Entry, known authenticator.Request, r *http.Request) (user.Info, error) {
	hook := slices.Contains(e.Admission, r.URL.Path)
	if hook && slices.Contains(e.AdmissionCallers, user.Anonymous) {
		return anonymous, nil
	}
	caller, err := c.authenticate(known, r)
	switch {
	case err != nil:
		return nil, err
	case hook && !slices.Contains(e.AdmissionCallers, caller.GetName()):
		return nil, httpjson.Errorf(http.StatusForbidden,
			"%q may not: the admission webhook is for the API server only, by a name of --admission-client-names",
			caller.GetName())
	case hook:
		return caller, nil
	}
	if err := c.mayAsk(r, caller); err != nil {
		return nil, httpjson.Errorf(Status(err), "%s", err)
	}
	return caller, nil
}

// authenticate returns who sent a request. A request of an unknown caller is refused, and so is one by the name of the
// trusted caller.
func (c *Checks) authenticate(known authenticator.Request, r *http.Request) (user.Info, error) {
	response, ok, err := known.AuthenticateRequest(r.WithContext(context.WithValue(r.Context(), shareKey{}, Share(r))))
	if err != nil {
		c.log.WithError(err).WithField("client", r.RemoteAddr).Debug("a caller could not be authenticated")
	}
	if errors.Is(err, errTooMany) {
		return nil, errTooMany
	}
	if errors.Is(err, ErrUnreachable) {
		return nil, httpjson.Errorf(http.StatusServiceUnavailable, "%s who you are; try again", ErrUnreachable)
	}
	if err != nil || !ok || response.User.GetName() == "" || Trusted(response.User) ||
		response.User.GetName() == user.Anonymous {
		return nil, httpjson.Errorf(http.StatusUnauthorized,
			"who are you? Show a client certificate of an authority in --client-ca-file, or a token of the cluster, that is "+
				"valid")
	}
	return response.User, nil
}

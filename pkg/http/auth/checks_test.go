package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
	"github.com/globalreserve/globalreserve/test/authority"
)

// apiServer knows one token, and gives the rights that are listed as "user verb path", "user use scheduler" or "user
// reserve in namespace".
type apiServer struct {
	*fake.Clientset
	rights map[string]bool
	last   authorizationv1.SubjectAccessReviewSpec // that was asked about
	asked  int                                     // what callers may do
	err    error
}

func newAPIServer(rights ...string) *apiServer {
	a := &apiServer{Clientset: fake.NewClientset(), rights: map[string]bool{}}
	for _, right := range rights {
		a.rights[right] = true
	}
	a.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if review.Spec.Token == "good" {
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{
				Username: "token", Groups: []string{"g"},
				Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}
		}
		return true, review, a.err
	})
	a.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		a.asked++
		a.last = review.Spec
		if path := review.Spec.NonResourceAttributes; path != nil {
			review.Status.Allowed = a.rights[review.Spec.User+" "+path.Verb+" "+path.Path]
		}
		if use := review.Spec.ResourceAttributes; use != nil && use.Group == "globalreserve.io" &&
			use.Resource == "schedulers" {
			review.Status.Allowed = a.rights[review.Spec.User+" "+use.Verb+" "+use.Name]
		}
		in := review.Spec.ResourceAttributes
		if in != nil && in.Group == "globalreserve.io" && in.Resource == "reservations" {
			review.Status.Allowed = a.rights[review.Spec.User+" "+in.Verb+" in "+in.Namespace]
		}
		return true, review, a.err
	})
	return a
}

func (a *apiServer) checks() *Checks {
	log, _ := logtest.NewNullLogger()
	return NewChecks(a, log)
}

// Who is let in, and as whom.
func TestOutside(t *testing.T) {
	ca, foreign := authority.New(), authority.New()
	content, err := dynamiccertificates.NewStaticCAContent("ca", ca.PEM())
	require.NoError(t, err)
	const client = x509.ExtKeyUsageClientAuth
	hour := time.Hour
	cases := map[string]struct {
		path        string
		certificate tls.Certificate // or none
		token       string
		names       []string // of --admission-client-names
		noCA        bool
		apiError    error
		want        int
		caller      string
	}{
		"nobody":                          {path: "/bind", want: 401},
		"nobody, where everybody may ask": {path: "/livez", want: 200, caller: user.Anonymous},
		"a certificate": {
			path: "/bind", certificate: ca.Issue("scheduler", hour, client, "a"), want: 200,
			caller: "scheduler",
		},
		"a certificate without the right": {path: "/reserve", certificate: ca.Issue("scheduler", hour, client), want: 403},
		"one of another authority":        {path: "/bind", certificate: foreign.Issue("scheduler", hour, client), want: 401},
		"an old one":                      {path: "/bind", certificate: ca.Issue("scheduler", -hour, client), want: 401},
		"that of a server": {
			path: "/bind", certificate: ca.Issue("scheduler", hour, x509.ExtKeyUsageServerAuth), want: 401,
		},
		"one of an authority nobody named": {
			path: "/bind", certificate: ca.Issue("scheduler", hour, client), noCA: true,
			want: 401,
		},
		"a kubelet": {
			path: "/bind", certificate: ca.Issue("system:node:a", hour, client, "system:nodes"), want: 403,
		},
		"one who says that he is trusted": {path: "/bind", certificate: ca.Issue(trusted.Name, hour, client), want: 401},
		"one who says that he is nobody":  {path: "/bind", certificate: ca.Issue(user.Anonymous, hour, client), want: 401},
		"a token":                         {path: "/bind", token: "good", want: 200, caller: "token"},
		"a token, and an old certificate": {
			path: "/bind", token: "good", certificate: ca.Issue("scheduler", -hour, client),
			want: 200, caller: "token",
		},
		"a bad token": {path: "/bind", token: "bad", want: 401},
		"a bad token, and a certificate": {
			path: "/bind", token: "bad", certificate: ca.Issue("scheduler", hour, client),
			want: 200, caller: "scheduler",
		},
		"a token nobody can look up": {path: "/bind", token: "good", apiError: errors.New("away"), want: 503},
		"a right nobody can look up": {
			path: "/bind", certificate: ca.Issue("scheduler", hour, client),
			apiError: errors.New("away"), want: 503,
		},
		"webhook, by nobody":        {path: "/admission", want: 401},
		"webhook, by nobody, names": {path: "/admission", names: []string{"api"}, want: 401},
		"webhook, by all, where one may": {
			path: "/admission", names: []string{user.Anonymous}, want: 200,
			caller: user.Anonymous,
		},
		"webhook, by no name": {path: "/admission", certificate: ca.Issue("api", hour, client), want: 403},
		"webhook, by another name": {
			path: "/admission", names: []string{"api"},
			certificate: ca.Issue("scheduler", hour, client), want: 403,
		},
		"webhook, by the API server": {
			path: "/admission", names: []string{"x", "api"},
			certificate: ca.Issue("api", hour, client), want: 200, caller: "api",
		},
		"webhook, by a name of another one": {
			path: "/admission", names: []string{"api"},
			certificate: foreign.Issue("api", hour, client), want: 401,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer("scheduler post /bind", "token post /bind", "scheduler post /admission", trusted.Name+
				" post /bind", user.Anonymous+" post /bind")
			server.err = tc.apiError
			entry := &Entry{
				ClientCA: content, Open: []string{"/livez"},
				Admission: []string{"/admission"}, AdmissionCallers: tc.names,
				Intake: httpjson.NewIntake(1<<20, Share),
			}
			if tc.noCA {
				entry.ClientCA = nil
			}
			r := request(forged...)
			r.Method, r.URL.Path = http.MethodPost, tc.path
			r.TLS = &tls.ConnectionState{}
			if tc.certificate.Leaf != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{tc.certificate.Leaf}
			}
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
			got := ""
			handler := server.checks().Outside(entry, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				got = Of(r.Context()).GetName()
				none(t, r.Header)
			}))
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			assert.Equal(t, tc.want, w.Code, w.Body.String())
			assert.Equal(t, tc.caller, got)
			if tc.want != 200 {
				assert.Contains(t, w.Body.String(), `"Error"`)
			}
		})
	}
}

// A right to act for a scheduler is one to a name. Answers count for a while, each for one caller and one question.
func TestMayUse(t *testing.T) {
	server := newAPIServer("a use batch")
	checks := server.checks()
	extra := map[string][]string{"scopes": {"s"}}
	a, b := &user.DefaultInfo{Name: "a", Groups: []string{"g"}, Extra: extra}, &user.DefaultInfo{Name: "b"}
	for range 2 {
		require.NoError(t, checks.MayUse(t.Context(), a, "batch"))
	}
	assert.Equal(t, 1, server.asked)
	assert.Equal(t, []string{"g"}, server.last.Groups)
	assert.Equal(t, map[string]authorizationv1.ExtraValue{"scopes": {"s"}}, server.last.Extra)
	var denied *DeniedError
	require.ErrorAs(t, checks.MayUse(t.Context(), a, "other"), &denied)
	assert.Contains(t, denied.Error(), `"a" may not act for scheduler "other"`)
	for range 2 {
		require.ErrorAs(t, checks.MayUse(t.Context(), b, "batch"), &denied)
	}
	assert.Equal(t, 3, server.asked)
	require.NoError(t, checks.MayUse(t.Context(), trusted, "anything"))
	assert.Equal(t, 3, server.asked)

	server.err = errors.New("away")
	err := checks.MayUse(t.Context(), a, "third")
	require.ErrorIs(t, err, ErrUnreachable)
	assert.Equal(t, http.StatusServiceUnavailable, Status(err))
	require.NoError(t, checks.MayUse(t.Context(), a, "batch"), "what is known is known")
	server.err = nil
	require.ErrorAs(t, checks.MayUse(t.Context(), a, "third"), &denied, "what was not answered is asked again")
	assert.Equal(t, http.StatusForbidden, Status(denied))
}

// A caller that may not ask for a path gets the name of the right that takes.
func TestMayAsk(t *testing.T) {
	checks := newAPIServer("a post /reserve").checks()
	request := httptest.NewRequest(http.MethodPost, "/reserve?x=y", nil)
	require.NoError(t, checks.mayAsk(request, &user.DefaultInfo{Name: "a"}))
	require.EqualError(t, checks.mayAsk(request, &user.DefaultInfo{Name: "b"}),
		`"b" may not POST /reserve: a role has to give it the verb post on that nonResourceURL`)
}

// To have the server reserve is a right in a namespace, or in all.
func TestMayReserve(t *testing.T) {
	server := newAPIServer("a reserve in ns", "b reserve in ")
	checks := server.checks()
	a, b := &user.DefaultInfo{Name: "a"}, &user.DefaultInfo{Name: "b"}
	for range 2 {
		require.NoError(t, checks.MayReserve(t.Context(), a, "ns"))
	}
	assert.Equal(t, 1, server.asked)
	var denied *DeniedError
	require.ErrorAs(t, checks.MayReserve(t.Context(), a, "other"), &denied)
	assert.Equal(t, `"a" may not reserve in namespace other: `+
		`a role has to give it the verb reserve on reservations.globalreserve.io there`, denied.Error())
	require.ErrorAs(t, checks.MayReserve(t.Context(), a, ""), &denied)
	assert.Contains(t, denied.Error(), "may not reserve in all namespaces")
	require.NoError(t, checks.MayReserve(t.Context(), b, ""))
	require.NoError(t, checks.MayReserve(t.Context(), trusted, "other"))
	assert.Equal(t, 4, server.asked)
}

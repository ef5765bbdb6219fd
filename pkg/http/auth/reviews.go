package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// The factories of k8s.io/apiserver would bring all that an API server is made of into the program, and double its
// size. What follows is the part of them that is needed.

const (
	// cacheFor is how long an answer of the API server counts, a refusal included: for so long, a change of rights may
	// not be in force yet. Kubernetes' own servers use the same time.
	cacheFor = 10 * time.Second
	// reviewTimeout is how long the API server may take for one answer. kube-scheduler waits 5 seconds for ours.
	reviewTimeout = 3 * time.Second
	// maxAnswers bounds the answers that are remembered of each kind.
	maxAnswers = 8192
	// reviewsInFlight is how many questions the API server has at one time. A scheduler has one for each path and
	// scheduler name in ten seconds; a tenant's list has one for each namespace, of 100 at most. One caller has half of
	// them at most.
	reviewsInFlight = 16
	// reviewRate is how many questions there may be in a second for one caller, or one address of those whose token is not
	// known yet, and reviewBurst how many at once.
	reviewRate  = 50
	reviewBurst = 300
)

// ErrUnreachable is the error of a question that the API server has not answered.
var ErrUnreachable = errors.New("the API server could not be asked")

// errTooMany refuses what would put too many questions to the API server.
var errTooMany = httpjson.Errorf(http.StatusTooManyRequests,
	"too much of what you ask has to be asked of the API server: wait a second, and send fewer different tokens, "+
		"paths, scheduler names and namespaces")

// reviews bounds what is asked of the API server, which serves the whole cluster: a flood of made-up tokens, or paths,
// must not become a flood of reviews. Answers that are remembered are not counted.
type reviews struct {
	seats   *httpjson.Shares
	rates   *httpjson.Rates
	refused atomic.Int64
}

func newReviews() *reviews {
	return &reviews{
		seats: httpjson.NewShares(reviewsInFlight, reviewsInFlight/2, reviewTimeout),
		rates: httpjson.NewRates(reviewRate, reviewBurst),
	}
}

// enter waits until a question may be asked that counts for share. leave ends it.
func (r *reviews) enter(ctx context.Context, share string) (leave func(), err error) {
	if r.rates.Take(share, time.Now()) {
		if leave, err = r.seats.Take(ctx, share, 1); err == nil {
			return leave, nil
		}
	}
	r.refused.Add(1)
	return nil, errTooMany
}

// answers are those of the API server, by the hash of what was asked: questions are as long as a client makes them.
type answers struct{ cache *cache.LRUExpireCache }

func newAnswers() answers { return answers{cache.NewLRUExpireCache(maxAnswers)} }

func (a answers) get(question []byte) (answer any, known bool) {
	return a.cache.Get(sha256.Sum256(question))
}

func (a answers) add(question []byte, answer any) {
	a.cache.Add(sha256.Sum256(question), answer, cacheFor)
}

type shareKey struct{}

// tokens asks the API server whose a token is, and remembers the answers for a while. Tokens of nobody
// are kept apart: made-up ones push no others out.
type tokens struct {
	client       authenticationclient.AuthenticationV1Interface
	reviews      *reviews
	good, nobody answers
}

func newTokens(client authenticationclient.AuthenticationV1Interface, reviews *reviews) *tokens {
	return &tokens{client: client, reviews: reviews, good: newAnswers(), nobody: newAnswers()}
}

// AuthenticateToken implements authenticator.Token. The context has the share that it counts for.
func (t *tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if answer, known := t.known(token); known {
		return answer, answer != nil, nil
	}
	share, _ := ctx.Value(shareKey{}).(string)
	leave, err := t.reviews.enter(ctx, share)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	if answer, known := t.known(token); known { // another request had the same token
		return answer, answer != nil, nil
	}
	answer, err := t.ask(ctx, token)
	switch {
	case err != nil:
		return nil, false, err
	case answer == nil:
		t.nobody.add([]byte(token), true)
	default:
		t.good.add([]byte(token), answer)
	}
	return answer, answer != nil, nil
}

// known returns what is remembered of a token; nil is nobody's.
func (t *tokens) known(token string) (answer *authenticator.Response, known bool) {
	if answer, known := t.good.get([]byte(token)); known {
		return answer.(*authenticator.Response), true
	}
	_, known = t.nobody.get([]byte(token))
	return nil, known
}

// ask asks the API server whose a token is; nil is nobody's.
func (t *tokens) ask(ctx context.Context, token string) (*authenticator.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := t.client.TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w whose a token is: %w", ErrUnreachable, err)
	case !review.Status.Authenticated:
		return nil, nil
	}
	who := &review.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{
		Name: who.Username, UID: who.UID, Groups: who.Groups,
		Extra: extra,
	}}, nil
}

// rights asks the API server what callers may do, and remembers the answers for a while.
type rights struct {
	client  authorizationclient.AuthorizationV1Interface
	reviews *reviews
	answers answers // of whether, by what was asked
}

func newRights(client authorizationclient.AuthorizationV1Interface, reviews *reviews) *rights {
	return &rights{client: client, reviews: reviews, answers: newAnswers()}
}

// may reports whether a caller has the right that spec names. It fills in the caller.
func (r *rights) may(ctx context.Context, who user.Info, spec *authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.User, spec.UID, spec.Groups = who.GetName(), who.GetUID(), who.GetGroups()
	for key, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, err
	}
	if answer, known := r.answers.get(question); known {
		return answer == true, nil
	}
	leave, err := r.reviews.enter(ctx, shareOf(who))
	if err != nil {
		return false, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := r.client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: *spec},
		metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%w what a caller may do: %w", ErrUnreachable, err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	r.answers.add(question, allowed)
	return allowed, nil
}

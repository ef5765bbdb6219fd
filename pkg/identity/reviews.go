package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// The factories of k8s.io/apiserver would bring all that an API server is made of into the program, and double its
// size. What follows is the part of them that is needed.

const (
	// cacheFor is how long an answer of the API server counts, a refusal included: so long after a right was taken
	// away or given, it is not in force yet. It is what Kubernetes' own servers have.
	cacheFor = 10 * time.Second
	// reviewTimeout is how long the API server may take for one answer. kube-scheduler waits 5 seconds for ours.
	reviewTimeout = 3 * time.Second
	// maxReviews bounds the answers that are remembered, and maxReviewed, in bytes, the questions.
	maxReviews  = 8192
	maxReviewed = 10_000
)

// ErrUnreachable is the error of a question that the API server has not answered.
var ErrUnreachable = errors.New("the API server could not be asked")

// tokens asks the API server whose a token is.
type tokens struct {
	client authenticationclient.AuthenticationV1Interface
}

// AuthenticateToken implements authenticator.Token.
func (t tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := t.client.TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%w whose a token is: %w", ErrUnreachable, err)
	case !review.Status.Authenticated:
		return nil, false, nil
	}
	who := &review.Status.User
	extra := make(map[string][]string, len(who.Extra))
	for key, values := range who.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: who.Username, UID: who.UID, Groups: who.Groups, Extra: extra}}, true, nil
}

// rights asks the API server what callers may do, and remembers the answers for a while.
type rights struct {
	client  authorizationclient.AuthorizationV1Interface
	answers *cache.LRUExpireCache // of whether, by what was asked
}

func newRights(client authorizationclient.AuthorizationV1Interface) *rights {
	return &rights{client: client, answers: cache.NewLRUExpireCache(maxReviews)}
}

// may reports whether a caller has a right, which is given by what is set of spec.
func (r *rights) may(ctx context.Context, caller user.Info, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.User, spec.UID, spec.Groups = caller.GetName(), caller.GetUID(), caller.GetGroups()
	spec.Extra = make(map[string]authorizationv1.ExtraValue, len(caller.GetExtra()))
	for key, values := range caller.GetExtra() {
		spec.Extra[key] = values
	}
	key, err := json.Marshal(&spec)
	if err != nil {
		return false, err
	}
	if answer, ok := r.answers.Get(string(key)); ok {
		return answer == true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	review, err := r.client.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%w what a caller may do: %w", ErrUnreachable, err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	if len(key) <= maxReviewed {
		r.answers.Add(string(key), allowed, cacheFor)
	}
	return allowed, nil
}

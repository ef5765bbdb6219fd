// Package authtest has Checks for tests, which ask an API server in memory who may do what.
package authtest

import (
	logtest "github.com/sirupsen/logrus/hooks/test"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/globalreserve/globalreserve/pkg/http/auth"
)

// Right is what the API server is asked about.
type Right = authorizationv1.ResourceAttributes

// Checks returns Checks by which a caller has the rights that may grants. Its answers are remembered for 10 seconds.
func Checks(may func(caller string, right *Right) bool) *auth.Checks {
	client := &fake.Clientset{}
	client.AddReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = may(review.Spec.User, review.Spec.ResourceAttributes)
		return true, review, nil
	})
	log, _ := logtest.NewNullLogger()
	return auth.NewChecks(client, log)
}

// All returns Checks by which everybody may do everything.
func All() *auth.Checks { return Checks(func(string, *Right) bool { return true }) }

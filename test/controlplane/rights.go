package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// noticed waits, where the object is a binding of a role, until the API server knows of it.
func (c *ControlPlane) noticed(ctx context.Context, object *unstructured.Unstructured) error {
	if object.GroupVersionKind().Group != rbacv1.GroupName || !strings.HasSuffix(object.GetKind(), "RoleBinding") {
		return nil
	}
	var binding rbacv1.RoleBinding // which has all that a ClusterRoleBinding has
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
		return err
	}
	return c.AwaitRights(ctx, &binding)
}

// AwaitRights waits until the API server gives the subjects of a binding what its role says: its authorizer learns of
// both some time after they were written, and who is denied meanwhile may remember that for longer. The binding of a
// ClusterRole to everything has no namespace. A role that is not there gives nothing.
func (c *ControlPlane) AwaitRights(ctx context.Context, binding *rbacv1.RoleBinding) error {
	rules, err := c.rules(ctx, binding)
	if err != nil {
		return err
	}
	for _, subject := range binding.Subjects {
		for i := range rules {
			if len(rules[i].NonResourceURLs) > 0 && binding.Namespace != "" {
				continue // these are given everywhere or not at all
			}
			review := &authorizationv1.SubjectAccessReview{Spec: reviewOf(&subject, &rules[i], binding.Namespace)}
			what := fmt.Sprint(subject.Kind, " ", subject.Name, " has the rights of ", binding.RoleRef.Name)
			err := Await(ctx, what, func(ctx context.Context) error {
				answer, err := c.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				if err == nil && !answer.Status.Allowed {
					return errors.New("it has not")
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rules are those of a binding's role.
func (c *ControlPlane) rules(ctx context.Context, binding *rbacv1.RoleBinding) (rules []rbacv1.PolicyRule, err error) {
	if binding.RoleRef.Kind == "Role" {
		var role *rbacv1.Role
		role, err = c.Client().RbacV1().Roles(binding.Namespace).Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		rules = role.Rules
	} else {
		var role *rbacv1.ClusterRole
		role, err = c.Client().RbacV1().ClusterRoles().Get(ctx, binding.RoleRef.Name, metav1.GetOptions{})
		rules = role.Rules
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return rules, err
}

// reviewOf asks whether a subject may do the first thing of a rule.
func reviewOf(subject *rbacv1.Subject, rule *rbacv1.PolicyRule,
	namespace string,
) (review authorizationv1.SubjectAccessReviewSpec) {
	switch subject.Kind {
	case rbacv1.GroupKind:
		review.Groups = []string{subject.Name}
	case rbacv1.ServiceAccountKind:
		review.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	default:
		review.User = subject.Name
	}
	if len(rule.NonResourceURLs) > 0 {
		review.NonResourceAttributes = &authorizationv1.NonResourceAttributes{
			Path: rule.NonResourceURLs[0],
			Verb: rule.Verbs[0],
		}
		return review
	}
	right := &authorizationv1.ResourceAttributes{Namespace: namespace, Group: rule.APIGroups[0], Verb: rule.Verbs[0]}
	right.Resource, right.Subresource, _ = strings.Cut(rule.Resources[0], "/")
	if len(rule.ResourceNames) > 0 {
		right.Name = rule.ResourceNames[0]
	}
	review.ResourceAttributes = right
	return review
}

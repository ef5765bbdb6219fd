package account

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts are quantities by name, each name once. There are few, so a list is smaller than a map, and searched as fast.
type amounts []amount

type amount struct {
	name     resourcev1.QualifiedName
	quantity resource.Quantity
}

func (list amounts) value(name resourcev1.QualifiedName) resource.Quantity {
	for i := range list {
		if list[i].name == name {
			return list[i].quantity
		}
	}
	return resource.Quantity{}
}

// entry returns the quantity of a name, 0 where it was not there. A quantity that others are added to is never
// a copy of another one: copies of very large ones share their digits.
func (list *amounts) entry(name resourcev1.QualifiedName) *resource.Quantity {
	for i := range *list {
		if (*list)[i].name == name {
			return &(*list)[i].quantity
		}
	}
	*list = append(*list, amount{name: name})
	return &(*list)[len(*list)-1].quantity
}

// each does something with each entry whose name others have, such as to add theirs.
func (list *amounts) each(others amounts, do func(*resource.Quantity, resource.Quantity)) {
	for i := range others {
		do(list.entry(others[i].name), others[i].quantity)
	}
}

// raise makes q as large as other.
func raise(q *resource.Quantity, other resource.Quantity) {
	if q.Cmp(other) < 0 {
		*q = other.DeepCopy()
	}
}

func (list amounts) equal(others amounts) bool {
	return len(list) == len(others) && !slices.ContainsFunc(list, func(a amount) bool {
		return !slices.ContainsFunc(others, func(o amount) bool {
			return o.name == a.name && o.quantity.Cmp(a.quantity) == 0
		})
	})
}

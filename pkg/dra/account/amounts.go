package account

import (
	"unique"

	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts are quantities by name, each name once. There are few, so a list is searched faster than a map.
// Names are shared by all that have them.
type amounts []amount

type amount struct {
	name     unique.Handle[string]
	quantity resource.Quantity
}

func (list amounts) of(name unique.Handle[string]) *resource.Quantity {
	for i := range list {
		if list[i].name == name {
			return &list[i].quantity
		}
	}
	return nil
}

func (list amounts) value(name unique.Handle[string]) resource.Quantity {
	if q := list.of(name); q != nil {
		return *q
	}
	return resource.Quantity{}
}

// entry returns the quantity of a name, 0 where it was not there. A quantity that others are added to is never
// a copy of another one: copies of very large ones share their digits.
func (list *amounts) entry(name unique.Handle[string]) *resource.Quantity {
	if q := list.of(name); q != nil {
		return q
	}
	*list = append(*list, amount{name: name})
	return &(*list)[len(*list)-1].quantity
}

func (list *amounts) add(others amounts) {
	for i := range others {
		list.entry(others[i].name).Add(others[i].quantity)
	}
}

func (list *amounts) sub(others amounts) {
	for i := range others {
		list.entry(others[i].name).Sub(others[i].quantity)
	}
}

// raise makes each quantity as large as that of the others.
func (list *amounts) raise(others amounts) {
	for i := range others {
		if q := list.entry(others[i].name); q.Cmp(others[i].quantity) < 0 {
			*q = others[i].quantity.DeepCopy()
		}
	}
}

func (list amounts) equal(others amounts) bool {
	if len(list) != len(others) {
		return false
	}
	for i := range list {
		if q := others.of(list[i].name); q == nil || q.Cmp(list[i].quantity) != 0 {
			return false
		}
	}
	return true
}

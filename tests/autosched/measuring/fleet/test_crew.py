"""Allocation of jobs to places that come, go and dawdle: nothing is lost, and nothing is answered twice."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.measuring.fleet.crew import Crew, Job


@dataclass(eq=False)
class Place:
    room: int = 2
    whole: bool = False


def crew_of(*places: Place, jobs: int = 0, alone: int = 0) -> tuple[Crew[Place, Job], list[Job]]:
    crew: Crew[Place, Job] = Crew()
    for place in places:
        crew.join(place)
    submitted = [*(Job() for _ in range(jobs)), *(Job(alone=True) for _ in range(alone))]
    for job in submitted:
        crew.submit(job)
    return crew, submitted


def answer_all(crew: Crew[Place, Job], started: list[tuple[Place, Job]], now: float) -> None:
    for place, job in started:
        assert crew.answer(place, job, now)


def test_jobs_go_where_most_room_is_left_and_no_further_than_there_is_room() -> None:
    wide, narrow = Place(4), Place(1)
    crew, jobs = crew_of(wide, narrow, jobs=7)
    started = crew.starts(0.0)
    assert [job for _, job in started] == jobs[:5]
    assert [place for place, _ in started].count(wide) == 4


def test_a_place_that_takes_them_whole_gets_none_while_it_has_any() -> None:
    place = Place(2, whole=True)
    crew, jobs = crew_of(place, jobs=5)
    first = crew.starts(0.0)
    assert crew.answer(*first[0], 1.0)
    assert crew.starts(1.0) == []
    assert crew.answer(*first[1], 1.0)
    assert [job for _, job in crew.starts(1.0)] == jobs[2:4]


def test_what_a_lost_place_had_goes_elsewhere_each_alone() -> None:
    lost, other = Place(), Place()
    crew, jobs = crew_of(lost, jobs=2)
    crew.starts(0.0)
    crew.join(other)
    assert crew.leave(lost) == []
    for job in jobs:
        assert crew.starts(1.0) == [(other, job)]
        assert crew.answer(other, job, 2.0)


def test_a_job_that_ends_two_places_is_given_up_and_those_beside_it_are_not() -> None:
    places = [Place() for _ in range(3)]
    crew, (deadly, innocent) = crew_of(places[0], jobs=2)
    crew.starts(0.0)
    crew.leave(places[0])
    crew.join(places[1])
    assert crew.starts(0.0) == [(places[1], deadly)]
    assert crew.leave(places[1]) == [deadly]
    crew.join(places[2])
    assert crew.starts(0.0) == [(places[2], innocent)]


def test_a_job_alone_gets_a_place_although_there_are_always_others() -> None:
    place = Place()
    crew, _ = crew_of(place, jobs=8)
    started = crew.starts(0.0)
    alone = Job(alone=True)
    crew.submit(alone)
    answer_all(crew, started[:1], 1.0)
    assert crew.starts(1.0) == []
    answer_all(crew, started[1:], 2.0)
    assert crew.starts(2.0) == [(place, alone)]


def test_an_idle_place_gets_a_copy_of_what_a_slow_one_has_and_the_first_answer_counts() -> None:
    slow, quick = Place(1), Place(1)
    crew, _ = crew_of(slow, jobs=1)
    ((_, dawdling),) = crew.starts(0.0)
    crew.join(quick)
    for number in range(20):
        crew.submit(Job())
        answer_all(crew, crew.starts(float(number)), number + 1.0)
    assert crew.starts(30.0) == [(quick, dawdling)]
    assert crew.answer(quick, dawdling, 31.0)
    assert not crew.answer(slow, dawdling, 32.0)


@pytest.mark.parametrize("answers", [15, 16])
def test_nothing_is_overdue_before_the_usual_duration_is_known(answers: int) -> None:
    slow, quick = Place(1), Place(1)
    crew, _ = crew_of(slow, jobs=1)
    ((_, dawdling),) = crew.starts(0.0)
    crew.join(quick)
    for number in range(answers):
        crew.submit(Job())
        answer_all(crew, crew.starts(float(number)), number + 1.0)
    assert crew.starts(1000.0) == ([(quick, dawdling)] if answers == 16 else [])


@given(st.lists(st.integers(0, 9), max_size=200), st.integers(1, 30))
def test_every_job_is_answered_or_given_up_once_whatever_becomes_of_the_places(steps: list[int], jobs: int) -> None:
    crew, submitted = crew_of(Place(3), Place(2, whole=True), jobs=jobs)
    under_way: list[tuple[Place, Job]] = []
    ended: list[Job] = []
    for now, step in enumerate(steps):
        under_way += crew.starts(float(now))
        if step == 0 and len(crew.places) > 1:
            ended += crew.leave(crew.places[now % len(crew.places)])
        elif step == 1:
            crew.join(Place(1 + now % 3))
        elif under_way:
            place, job = under_way.pop(step % len(under_way))
            ended += [job] if crew.answer(place, job, float(now)) else []
    while pairs := under_way + crew.starts(1e6):
        under_way = []
        ended += [job for place, job in pairs if crew.answer(place, job, 1e6)]
    assert sorted(map(id, ended)) == sorted(map(id, submitted))


def test_dropped_jobs_keep_their_places_busy_and_are_neither_heard_nor_started_again() -> None:
    place, other = Place(), Place(1)
    crew, jobs = crew_of(place, jobs=3)
    started = crew.starts(0.0)
    assert set(crew.drop()) == set(jobs)
    assert crew.drop() == []
    later = Job()
    crew.submit(later)
    assert crew.starts(1.0) == []
    assert not crew.answer(*started[0], 1.0)
    assert crew.starts(1.0) == [(place, later)]
    crew.join(other)
    assert crew.leave(place) == []
    assert crew.starts(2.0) == [(other, later)]
    assert crew.starts(3.0) == []
